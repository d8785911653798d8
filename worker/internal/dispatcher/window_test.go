package dispatcher_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue"
)

func TestWindow_BoundsTheQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.acceptMany(t, b.Accept(t, b.Company(t), nil), 999)
	b.dispatch(t, b.params())
	waittest.Until(t, "a full window", func() bool { return b.count(t, email.Enqueued) == 200 })
	waittest.Until(t, "200 tasks", func() bool { return b.depth(t, email.QueueNormal) == 200 })
	// Two workers report that the rate needs more emails in flight, and one of the previous release its concurrency.
	for instance, details := range map[string]map[string]any{
		"a": {"concurrency": 3, "neededMs": 500, "sendRate": 300.0}, "b": {"concurrency": 3, "neededMs": 1000}, "c": {"concurrency": 225},
	} {
		if err := b.Store.ReportStatus(t.Context(), "worker", instance, time.Now(), details); err != nil {
			t.Fatal(err)
		}
	}
	waittest.Until(t, "three quarters of a second, and what all need", func() bool { return b.count(t, email.Enqueued) == 600 })
	waittest.Until(t, "600 tasks", func() bool { return b.depth(t, email.QueueNormal) == 600 })
}

// The last batch of a burst is confirmed as published soon.
func TestBatches_Confirmed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.dispatch(t, b.params())
	b.expectStatus(t, b.Accept(t, b.Company(t), nil), email.Enqueued)
	waittest.Until(t, "no batch on record", func() bool {
		var n int
		if err := b.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM dispatch_batches`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}

// A tenant's many emails delay another tenant's single email by the window and no more.
func TestWindow_DelayOfOtherTenants(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	loud, quiet := b.Company(t), b.Company(t)
	b.acceptMany(t, b.Accept(t, loud, nil), 9_999)

	var mu sync.Mutex
	var handled []string
	pace := time.NewTicker(5 * time.Millisecond) // a provider that accepts 200 per second
	t.Cleanup(pace.Stop)
	b.consume(t, 4, func(_ context.Context, task queue.Task) error {
		<-pace.C
		mu.Lock()
		defer mu.Unlock()
		handled = append(handled, task.ID)
		return nil
	})
	place := func(id string) int {
		mu.Lock()
		defer mu.Unlock()
		if id == "" {
			return len(handled)
		}
		return slices.Index(handled, id)
	}
	b.dispatch(t, b.params())
	waittest.Until(t, "a hundred of the loud tenant's", func() bool { return place("") > 100 })
	id := b.Accept(t, quiet, nil).String()
	before := place("")
	waittest.Until(t, "the quiet tenant's email", func() bool { return place(id) >= 0 })
	// A window of 200 was queued, and the quiet lane is noticed within a second.
	if ahead := place(id) - before; ahead > 2*200 {
		t.Errorf("%d emails of the loud tenant went first", ahead)
	}
	if n := b.count(t, email.Pending); n < 1_000 {
		t.Errorf("only %d emails of the loud tenant are left: it was not loud enough", n)
	}
}

// With more lanes than room on the queue each lane gets its turn.
func TestWindow_MoreLanesThanRoom(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const lanes = 40
	laneOf := make(map[string]uuid.UUID)
	for range lanes {
		company := b.Company(t)
		for range 3 {
			laneOf[b.Accept(t, company, nil).String()] = company
		}
	}
	b.consume(t, 2, func(context.Context, queue.Task) error { return nil })
	r := &recorder{Publisher: b.publisher}
	p := b.params()
	p.Queue, p.SendRate = r, 9 // a window of 7
	b.dispatch(t, p)
	waittest.Until(t, "everything on its way", func() bool { return b.count(t, email.Enqueued) == 3*lanes })
	had := make(map[uuid.UUID]int)
	for n, id := range r.published() {
		had[laneOf[id]]++
		// Within a round the publishers may reorder rows.
		if lead := had[laneOf[id]] - 1 - n/lanes; lead > 1 {
			t.Errorf("email %d: its lane is %d turns ahead", n, lead)
		}
	}
}

func TestTwoDispatchers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 4 {
		b.acceptMany(t, b.Accept(t, b.Company(t), nil), 499)
	}
	r := &recorder{Publisher: b.publisher}
	for range 2 {
		p := b.params()
		p.Queue, p.SendRate = r, 2_700
		b.dispatch(t, p)
	}
	waittest.Until(t, "all on the queue", func() bool { return b.depth(t, email.QueueNormal) == 2_000 })
	times := make(map[string]int)
	for _, id := range r.published() {
		times[id]++
	}
	for id, n := range times {
		if n != 1 {
			t.Errorf("%s was published %d times", id, n)
		}
	}
	if t.Failed() {
		t.Log(b.log)
	}
	if len(times) != 2_000 {
		t.Errorf("%d ids were published, want 2000", len(times))
	}
}
