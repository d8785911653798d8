package e2e_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// peakMemory is the most memory that the process has had (bytes).
func (p *program) peakMemory(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if after, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(after), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("no VmHWM in /proc/…/status")
	return 0
}

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
		t.Logf("%s: at most %d MiB for %d emails of 5 MiB", p.name, p.peakMemory(t)>>20, emails)
	}
	if most := s.worker.peakMemory(t); most > 512<<20 {
		t.Errorf("the worker needed %d MiB", most>>20)
	}
}
