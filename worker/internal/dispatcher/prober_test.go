package dispatcher_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/dispatcher"
	"email-gateway/worker/internal/queue"
)

func (b *bench) openBreaker(t *testing.T) {
	t.Helper()
	g, err := b.Store.Breaker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := breaker.Opening{Reason: "SES_TIMEOUT", By: "worker-1", Attempt: uuid.New(), Pass: breaker.Pass{Openings: g.Openings}}
	if done, err := b.Store.OpenBreaker(t.Context(), w); err != nil || !done.Opened {
		t.Fatalf("opened: %v, %v", done, err)
	}
}

// probeDue moves the last probe into the past, so that the next one is due.
func (b *bench) probeDue(t *testing.T) {
	t.Helper()
	if _, err := b.SQL.ExecContext(t.Context(), `UPDATE provider_gate SET probe_at = now() - interval '1 min'`); err != nil {
		t.Fatal(err)
	}
}

// While the breaker is open two dispatchers enqueue one email at a time, the oldest first in
// whichever queue; and all of them when it closes.
func TestProber(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	company := b.Company(t)
	b.openBreaker(t)
	var ids []string
	for i, priority := range []int{9, 5, 1, 5, 5} {
		id := b.Accept(t, company, withPriority(priority))
		b.set(t, id, "next_at = now() - interval '1 h' + interval '1 s' * "+string(rune('0'+i)))
		ids = append(ids, id.String())
	}
	seen := &recorder{Publisher: b.publisher}
	for range 2 {
		p := b.params()
		p.Queue = seen
		b.dispatch(t, p)
	}
	for i := range 3 {
		b.expectStays(t, uuid.MustParse(ids[i]), email.Pending)
		b.probeDue(t)
		b.expectStatus(t, uuid.MustParse(ids[i]), email.Enqueued)
		waittest.Until(t, "the next one is published", func() bool { return slices.Equal(seen.published(), ids[:i+1]) })
	}
	g, err := b.Store.Breaker(t.Context())
	if err != nil || g.ProbeID == nil || g.ProbeID.String() != ids[2] {
		t.Fatalf("circuit breaker = %+v, %v", g, err)
	}
	if _, opened, err := b.Store.CloseBreaker(t.Context(), breaker.Closing{By: "worker-1", Pass: breaker.Pass{Openings: g.Openings}, Accepted: true}); err != nil || !opened {
		t.Fatal(opened, err)
	}
	b.expectStatus(t, uuid.MustParse(ids[4]), email.Enqueued)
}

// A probe that the queue refuses is skipped for the next one.
func TestProber_RefusedProbeIsSkipped(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	company := b.Company(t)
	b.openBreaker(t)
	oldest, next := b.Accept(t, company, nil), b.Accept(t, company, nil)
	b.set(t, oldest, "next_at = now() - interval '1 h'")
	p := b.params()
	p.Queue = &recorder{Publisher: b.publisher, refuse: func(id string) error {
		if id == oldest.String() {
			return errors.New("not this one")
		}
		return nil
	}}
	b.dispatch(t, p)
	waittest.Until(t, "the next one is the probe", func() bool {
		b.probeDue(t)
		return b.status(t, next) == email.Enqueued
	})
	if got := b.status(t, oldest); got != email.Pending {
		t.Errorf("the refused one: %s", got)
	}
}

// cutOff is a queue that cannot be measured.
type cutOff struct {
	recorder
	tries atomic.Int64
}

func (c *cutOff) Reserve(context.Context, string, int, int) (queue.Room, error) {
	c.tries.Add(1)
	return queue.Room{}, errors.New("connection refused")
}

// A dispatcher that is cut off from the queue chooses no probe, so that each pause has one of another dispatcher.
func TestProber_CutOffFromTheQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.Accept(t, b.Company(t), nil)
	b.openBreaker(t)
	p := b.params()
	counted := &probeCounter{Store: b.Store}
	cut := &cutOff{recorder: recorder{Publisher: b.publisher}}
	p.Store, p.Queue = counted, cut
	b.probeDue(t)
	b.dispatch(t, p)
	waittest.Until(t, "several rounds", func() bool { return cut.tries.Load() >= 20 })
	if n := counted.rounds.Load(); n > 0 {
		t.Errorf("the dispatcher that is cut off has chosen %d probes", n)
	}
	b.dispatch(t, b.params())
	b.expectStatus(t, id, email.Enqueued)
}

// A dispatcher measures the queue and cannot publish: another one may choose a probe at once, and the first one pauses.
func TestProber_CannotPublish(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Accept(t, b.Company(t), nil)
	b.openBreaker(t)
	p := b.params()
	counted := &probeCounter{Store: b.Store}
	p.Store, p.Queue = counted, &recorder{Publisher: b.publisher, refuse: func(string) error { return errors.New("read only") }}
	b.dispatch(t, p)
	b.probeDue(t)
	waittest.Until(t, "another dispatcher may choose a probe", func() bool {
		g, err := b.Store.Breaker(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return g.ProbeID != nil && g.ProbeAt == nil
	})
	waittest.Until(t, "the next try", func() bool { return len(counted.chosen()) > 1 })
	if at := counted.chosen(); at[1].Sub(at[0]) < 5*time.Second {
		t.Errorf("the dispatcher tries again after %s", at[1].Sub(at[0]))
	}
}

// Another session locks the oldest row: the next one is the probe.
func TestProber_LockedRow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	company := b.Company(t)
	b.openBreaker(t)
	oldest, next := b.Accept(t, company, nil), b.Accept(t, company, nil)
	b.set(t, oldest, "next_at = now() - interval '1 h'")
	tx, err := b.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "SELECT FROM email_outbox WHERE id = $1 FOR UPDATE", oldest); err != nil {
		t.Fatal(err)
	}
	b.probeDue(t)
	b.dispatch(t, b.params())
	b.expectStatus(t, next, email.Enqueued)
	if got := b.status(t, oldest); got != email.Pending {
		t.Errorf("the locked one: %s", got)
	}
}

// Bulk jobs do not use the provider and are not held back.
func TestProber_BulkJobsPass(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	company := b.Company(t)
	b.openBreaker(t)
	id := b.Accept(t, company, nil)
	if _, err := b.SQL.ExecContext(t.Context(), `UPDATE email_outbox SET target = 'recipients.upsert',
		lane_id = (SELECT id FROM dispatch_lanes WHERE company_id = $1 AND queue = $2)`, company, email.QueueRecipients); err != nil {
		t.Fatal(err)
	}
	found, err := b.Store.WaitingLanes(t.Context())
	live := found.Due()
	if err != nil || len(live) != 1 || len(live[email.QueueRecipients]) != 1 {
		t.Errorf("live lanes %v, %v; %s waits", live, err, id)
	}
	b.probeDue(t)
	if probe, found, err := b.Store.PickProbe(t.Context(), email.Queues(), time.Second, true); err != nil || found {
		t.Errorf("probe %+v, %v", probe, err)
	}
}

// probeCounter counts how often a dispatcher searches for a probe, and notes when it chose one.
type probeCounter struct {
	dispatcher.Store
	rounds, early atomic.Int64

	mu    sync.Mutex
	found []time.Time
}

// chosen returns when the dispatcher chose probes.
func (c *probeCounter) chosen() []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.found)
}

func (c *probeCounter) PickProbe(ctx context.Context, queues []string, pause time.Duration, early bool) (dispatch.Probe, bool, error) {
	c.rounds.Add(1)
	if early {
		c.early.Add(1)
	}
	probe, found, err := c.Store.PickProbe(ctx, queues, pause, early)
	if found {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.found = append(c.found, time.Now())
	}
	return probe, found, err
}

// Without a candidate, the retries of all lanes are not searched in each round.
func TestProber_SearchesRetriesOncePerPause(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.openBreaker(t)
	p := b.params()
	counted := &probeCounter{Store: b.Store}
	p.Store = counted
	start := time.Now()
	b.dispatch(t, p)
	waittest.Until(t, "five rounds", func() bool { return counted.rounds.Load() >= 5 })
	if n, most := counted.early.Load(), 1+int64(time.Since(start)/(5*time.Second)); n < 1 || n > most {
		t.Errorf("searched retries %d times in %s, want 1 to %d", n, time.Since(start), most)
	}
}
