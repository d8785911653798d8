package dispatcher_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/worker/internal/dispatcher"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/asynqueue"
)

// slowLooks is an outbox that does not answer looks at the lanes for a while.
type slowLooks struct {
	dispatcher.Outbox
	over <-chan struct{}
}

func (s slowLooks) WaitingLanes(ctx context.Context) (store.WaitingLanes, error) {
	select {
	case <-s.over:
	case <-ctx.Done():
	}
	return s.Outbox.WaitingLanes(ctx)
}

// reservations counts those of one queue, and how many of them were granted room.
type reservations struct {
	queue.Publisher
	asked, granted atomic.Int64
}

func (r *reservations) Reserve(ctx context.Context, name string, window, most int) (queue.Room, error) {
	room, err := r.Publisher.Reserve(ctx, name, window, most)
	if name == email.QueueNormal {
		r.asked.Add(1)
		if room.Granted > 0 {
			r.granted.Add(1)
		}
	}
	return room, err
}

// A dispatcher that waited for Postgres for longer than its reservation lasts reserves anew: another
// one has filled the queue in the meantime.
func TestDispatch_ReservesAgainAfterASlowLook(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.acceptMany(t, b.Accept(t, b.Company(t), nil), 1000)
	publisher := func() queue.Publisher { // each has reservations of its own
		p := asynqueue.NewPublisher(b.conn)
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	over, end := context.WithTimeout(t.Context(), 6*time.Second)
	defer end()
	slow, queued := b.params(), &reservations{Publisher: publisher()}
	slow.Outbox, slow.Queue = slowLooks{b.Store, over.Done()}, queued
	b.dispatch(t, slow)
	eventually(t, "the slow dispatcher has reserved room", func() bool { return queued.granted.Load() == 1 })

	other := b.params()
	other.Queue = publisher()
	b.dispatch(t, other)
	const window = 200
	eventually(t, "the other has filled the window", func() bool { return b.depth(t, email.QueueNormal) >= window })
	asked := queued.asked.Load()
	eventually(t, "the slow dispatcher goes on", func() bool { return queued.asked.Load() > asked+3 })
	if n := b.depth(t, email.QueueNormal); n > window {
		t.Errorf("%d tasks in a window of %d", n, window)
	}
}
