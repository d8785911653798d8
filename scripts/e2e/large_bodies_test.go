package e2e_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"email-gateway/scripts/sessim"
	"email-gateway/shared/store/storetest"
)

// Many emails of 1 MiB of one company, which SES takes seconds to accept, occupy neither the worker's memory nor its concurrency:
// another company's small emails are sent meanwhile. The large ones wait in the outbox without spending a try.
func TestLargeBodies(t *testing.T) {
	const large, small, slow = 40, 10, 8 * time.Second
	s := startSystem(t, map[string]string{"WORKER_CONCURRENCY": "64"})
	ofLarge, ofSmall := s.key, s.newKey("Outra", "billing@outra.example")
	sendSmall := func() {
		s.key = ofSmall
		for i := range small {
			s.await(s.send(fmt.Sprintf("ana%d@rapido.example", i), nil), "SENT")
		}
	}
	sendSmall()
	before := s.worker.heap()

	if err := s.ses.Inject(sessim.Rule{Fault: "slow", Match: sessim.Match{To: "@lento.example"}, DelayMS: slow.Milliseconds()}); err != nil {
		t.Fatal(err)
	}
	html := "<p>" + strings.Repeat("x", 512<<10-len("<p></p>")) + "</p>"
	s.key = ofLarge
	var senders sync.WaitGroup
	for sender := range 4 {
		senders.Go(func() {
			for i := sender; i < large; i += 4 {
				s.send(fmt.Sprintf("cliente%d@lento.example", i), func(b map[string]any) { b["html"], b["text"] = html, html })
			}
		})
	}
	senders.Wait()
	eventually(t, func() error {
		if n := s.worker.metric("pipeline_attachment_waits_total", "busy"); n < large/2 {
			return fmt.Errorf("%v large emails were postponed", n)
		}
		return nil
	})
	sendSmall()
	if storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status <> 'SENT'") == 0 {
		t.Error("the large emails were sent before the small ones")
	}
	s.ses.ClearFaults()
	s.awaitAll(large+2*small, "SENT")
	if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE attempts > 1"); n > 0 {
		t.Errorf("%d emails spent more than one try", n)
	}
	used := int64(s.worker.heap() - before)
	t.Logf("the worker needed %d MiB more for %d emails of 1 MiB", used>>20, large)
	if used > 160<<20 {
		t.Errorf("the worker needed %d MiB for large bodies", used>>20)
	}
}

// heap is the most memory that the process's heap has had (bytes). The race detector's own memory is not part of it.
func (p *program) heap() float64 { return p.metric("go_memstats_heap_sys_bytes") }
