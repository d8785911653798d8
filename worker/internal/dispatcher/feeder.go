package dispatcher

import (
	"context"
	"log/slog"
	"time"

	"email-gateway/worker/internal/queue"
)

const (
	// lost is how long past its time an email whose task waits for its retry is taken
	// to have no task any more: a broker may be late by a second, not by five.
	lost = 5 * time.Second
	// batch bounds what one round takes. Some rounds of this size per second use the
	// database well, and each ends within a tenth of a second: so long waits a worker
	// that gets a task before the round that made it is committed.
	batch = 1000
	// relist is how long a list of live lanes is good for while all of them have more
	// than their share. Listing costs as much as taking a batch.
	relist = 100 * time.Millisecond
	// fullPause is how soon a full queue is measured again: at 1,000 emails per second
	// 15 of them have gone by then, which is next to nothing of a window of 2,000.
	fullPause = 15 * time.Millisecond
	// busyPause is when an email is looked at again whose last task is still in work.
	busyPause = 200 * time.Millisecond
)

// feeder keeps one queue filled up to its window.
type feeder struct {
	name        string
	outbox      Outbox
	queue       queue.Publisher
	maxAttempts int
	window      *window
	live        []int64 // lanes, as of listed
	listed      time.Time
	turns       turns
	outage      *outage
	failures    int // rounds in a row
	metrics     queueMetrics
	log         *slog.Logger
}

// runOnce is a round with its failures dealt with: they are told once by the outage,
// not once per round by the loop.
func (f *feeder) runOnce(ctx context.Context) (more bool, err error) {
	more, err = f.round(ctx)
	switch {
	case ctx.Err() != nil:
		return false, nil
	case err != nil:
		f.outage.begin(f.name, err)
		pause(ctx, f.backoff())
		return true, nil
	}
	f.outage.end(f.name)
	f.failures = 0
	return more, nil
}

// round moves one batch. It asks the broker before the database: a full window then
// costs the database nothing.
func (f *feeder) round(ctx context.Context) (more bool, err error) {
	depth, err := f.queue.Depth(ctx, f.name)
	if err != nil {
		return false, err
	}
	free := f.window.Size() - depth
	if free <= 0 {
		pause(ctx, fullPause)
		return true, nil
	}
	if time.Since(f.listed) > relist {
		if f.live, err = f.outbox.LiveLanes(ctx, f.name, lost); err != nil || len(f.live) == 0 {
			return false, err
		}
		f.listed = time.Now()
	}
	chosen, perLane := f.turns.share(f.live, min(free, batch))
	begun := time.Now()
	taken, err := f.outbox.DispatchDue(ctx, chosen, perLane, lost, f.enqueue)
	if taken < perLane*len(chosen) {
		f.listed = time.Time{} // some lane has run dry
	}
	f.metrics.round(taken, time.Since(begun))
	// None taken of lanes that held due emails: another dispatcher has them in hand.
	return taken > 0, err
}

// backoff is 50 ms after the first failure in a row, 100 after the second, 1 s at most.
func (f *feeder) backoff() time.Duration {
	f.failures++
	return min(25*time.Millisecond<<min(f.failures, 6), time.Second)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
