package dispatcher_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/dispatcher"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/asynqueue"
)

// slowPolls is an outbox that answers polls of the lanes slowly for a while.
type slowPolls struct {
	dispatcher.Store
	over <-chan struct{}
}

func (s slowPolls) ProbeLanes(ctx context.Context, lanes []dispatch.LaneProbe) (dispatch.WaitingLanes, error) {
	select {
	case <-s.over:
	case <-ctx.Done():
	}
	return s.Store.ProbeLanes(ctx, lanes)
}

// reservations counts the reservations of one queue, and those that were granted room.
type reservations struct {
	queue.Publisher
	asked, granted atomic.Int64
}

func (r *reservations) Reserve(ctx context.Context, name string, window, limit int) (queue.Room, error) {
	room, err := r.Publisher.Reserve(ctx, name, window, limit)
	if name == email.QueueNormal {
		r.asked.Add(1)
		if room.Granted > 0 {
			r.granted.Add(1)
		}
	}
	return room, err
}

// A dispatcher that waited for Postgres longer than its reservation lasts reserves again: another
// one may have filled the queue.
func TestDispatch_ReservesAgainAfterSlowPoll(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.acceptMany(t, b.Accept(t, b.Company(t), nil), 1000)
	publisher := func() queue.Publisher { // each has its own reservations
		p := asynqueue.NewPublisher(b.conn)
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	over, end := context.WithTimeout(t.Context(), 6*time.Second)
	defer end()
	slow, queued := b.params(), &reservations{Publisher: publisher()}
	slow.Store, slow.Queue = slowPolls{b.Store, over.Done()}, queued
	b.dispatch(t, slow)
	waittest.Until(t, "the slow dispatcher has reserved room", func() bool { return queued.granted.Load() == 1 })

	other := b.params()
	other.Queue = publisher()
	b.dispatch(t, other)
	const window = 200
	waittest.Until(t, "the other has filled the window", func() bool { return b.depth(t, email.QueueNormal) >= window })
	asked := queued.asked.Load()
	waittest.Until(t, "the slow dispatcher goes on", func() bool { return queued.asked.Load() > asked+3 })
	if n := b.depth(t, email.QueueNormal); n > window {
		t.Errorf("%d tasks in a window of %d", n, window)
	}
}
