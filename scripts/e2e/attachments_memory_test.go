package e2e_test

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
)

// 1,000 emails that attach one file of 5 MiB cost one stored copy, and memory does not grow with them. ATTACHMENT_EMAILS sets
// another number.
func TestAttachments_Many(t *testing.T) {
	emails := 40
	if text := os.Getenv("ATTACHMENT_EMAILS"); text != "" {
		var err error
		if emails, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	storage := t.TempDir()
	s := startSystem(t, map[string]string{"STORAGE_URL": "file://" + storage})
	file := pdfOf(5 << 20)
	fileID := s.uploadFile(file)
	ids := make([]string, emails)
	var senders sync.WaitGroup
	for sender := range 4 {
		senders.Go(func() {
			for i := sender; i < emails; i += 4 {
				ids[i] = s.send(fmt.Sprintf("ana%d@cliente.example", i), func(b map[string]any) {
					b["attachments"] = []map[string]any{{"filename": "a.pdf", "contentType": "application/pdf", "fileId": fileID}}
				})
			}
		})
	}
	senders.Wait()
	for _, id := range ids {
		s.await(id, "SENT")
	}
	arrived := 0
	for _, mail := range s.ses.Inbox() {
		if len(mail.Attachments) == 1 && mail.Attachments[0].SHA256 == sumOf(file) {
			arrived++
		}
	}
	if arrived != emails {
		t.Errorf("the file arrived %d times, want %d", arrived, emails)
	}
	if n := files(t, storage); n != 1 {
		t.Errorf("%d stored copies, want 1", n)
	}
	for _, p := range []*program{s.api, s.dispatcher, s.worker} {
		t.Logf("%s: at most %d MiB for %d emails of 5 MiB", p.name, p.peakMemory()>>20, emails)
	}
	if most := s.worker.peakMemory(); most > 512<<20 {
		t.Errorf("the worker needed %d MiB", most>>20)
	}
}
