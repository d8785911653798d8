package mailing_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"email-gateway/worker/internal/mailing"
	"email-gateway/worker/internal/mx"
	"email-gateway/worker/internal/queue"
)

// silentDomains answers after the job's time for domains whose name begins with dead, and remembers what it has answered.
type silentDomains struct {
	after time.Duration

	mu       sync.Mutex
	answered map[string]bool
	waited   int // checks that waited since the last job
}

func (d *silentDomains) Check(_ context.Context, domain string) (mx.Result, error) {
	d.mu.Lock()
	silent := strings.HasPrefix(domain, "dead") && !d.answered[domain]
	if silent {
		d.waited++
	}
	d.answered[domain] = true
	d.mu.Unlock()
	if silent {
		<-time.After(d.after)
	}
	return mx.Result{Valid: !strings.HasPrefix(domain, "gone")}, nil
}

// Name servers that do not answer end a job of a mailing after its time, so that other mailings have their turn. No
// domain is left unchecked, and each job makes progress.
func TestProcessor_SilentNameServers(t *testing.T) {
	t.Parallel()
	const checks = 16 // at once
	b := newBench(t)
	entries := many(200)
	for i := range entries {
		entries[i].email = fmt.Sprintf("a@%s%d.example", []string{"dead", "live", "dead", "gone"}[i%4], i)
	}
	id, _ := b.mailing(t, entries...)
	p := b.params()
	p.JobTime = 100 * time.Millisecond
	slow := &silentDomains{after: p.JobTime, answered: map[string]bool{}}
	p.Domains = slow
	jobs, before := 0, -1
	for tasks := []queue.Task{taskOf(id, 1)}; len(tasks) > 0; tasks = b.published(t) {
		slow.waited = 0
		if err := mailing.New(p).Handle(t.Context(), tasks)[0]; err != nil {
			t.Fatal(err)
		}
		if slow.waited > 2*checks {
			t.Fatalf("job %d has waited for %d name servers", jobs, slow.waited)
		}
		lines := ask[int](t, b, `SELECT processed_lines FROM mailings`)
		if lines <= before {
			t.Fatalf("job %d has expanded nothing after line %d", jobs, lines)
		}
		before = lines
		jobs++
	}
	b.want(t, "SENDING 200", `SELECT status || ' ' || processed_lines FROM mailings`)
	b.want(t, "50 150", `SELECT count(*) FILTER (WHERE status = 'INVALID') || ' ' || count(*) FILTER (WHERE status = 'QUEUED') FROM mailing_entries`)
	if jobs < 3 {
		t.Errorf("%d jobs", jobs)
	}
}
