package dispatcher

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
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
	// relist is how long a list of live lanes is good for, at least; a lane that has
	// run dry is taken off it. A long list is kept ten times as long as it took to make,
	// since making it costs as much as a few rounds, but no longer than maxRelist: a
	// tenant that was quiet must be seen well within the window.
	relist    = 100 * time.Millisecond
	maxRelist = time.Second
	// fullPause is how soon a full queue is measured again: at 1,000 emails per second
	// 15 of them have gone by then, which is next to nothing of a window of 2,000.
	fullPause = 15 * time.Millisecond
	// busyPause is when an email is looked at again whose last task is still in work.
	busyPause = 200 * time.Millisecond
)

// feeder keeps one queue filled up to its window.
type feeder struct {
	name      string
	outbox    Outbox
	queue     queue.Publisher
	payload   payload
	window    func() int // how many tasks the queue should hold
	live      []int64    // lanes
	liveUntil time.Time
	turns     turns
	outage    *outage
	failures  int // rounds in a row
	metrics   queueMetrics
	tracer    telemetry.Tracer
	log       *slog.Logger

	lostRetries func(n int)
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
		return service.Pause(ctx, f.backoff()) == nil, nil
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
	window := f.window()
	f.metrics.depth(depth, window)
	free := window - depth
	if free <= 0 {
		return service.Pause(ctx, fullPause) == nil, nil
	}
	listed := len(f.live) == 0 || time.Now().After(f.liveUntil)
	if listed {
		if err := f.list(ctx); err != nil || len(f.live) == 0 {
			return false, err
		}
	}
	taken, err := f.take(ctx, min(free, batch))
	// None taken of lanes that held due emails just now: another dispatcher has them.
	return taken > 0 || !listed, err
}

// list asks which lanes are live.
func (f *feeder) list(ctx context.Context) (err error) {
	begun := time.Now()
	f.live, err = f.outbox.LiveLanes(ctx, f.name, lost)
	f.liveUntil = time.Now().Add(min(max(relist, 10*time.Since(begun)), maxRelist))
	return err
}

// take moves at most room emails, shared among the live lanes.
func (f *feeder) take(ctx context.Context, room int) (taken int, err error) {
	chosen, perLane := f.turns.share(f.live, room)
	brought := make(map[int64]int, len(chosen))
	for _, lane := range chosen {
		brought[lane] = 0
	}
	var done store.Dispatched
	retries := make(map[uuid.UUID]bool)
	begun := time.Now()
	taken, err = f.outbox.DispatchDue(ctx, chosen, perLane, lost, func(ctx context.Context, due []store.DueRow) (_ store.Dispatched, err error) {
		for _, row := range due {
			brought[row.LaneID]++
			if row.Status == email.RetryScheduled {
				retries[row.ID] = true
			}
		}
		done, err = f.enqueue(ctx, due)
		return done, err
	})
	if err != nil {
		return 0, err
	}
	f.live = slices.DeleteFunc(f.live, func(lane int64) bool {
		n, took := brought[lane]
		return took && n < perLane
	})
	f.metrics.round(taken, time.Since(begun))
	f.tellLost(retries, done.Enqueued)
	return taken, nil
}

// tellLost counts and logs the retries that stand on the queue again. One whose last task
// is still in work was late and not lost.
func (f *feeder) tellLost(retries map[uuid.UUID]bool, enqueued []uuid.UUID) {
	n := 0
	for _, id := range enqueued {
		if retries[id] {
			n++
		}
	}
	if n == 0 {
		return
	}
	f.log.Warn("retries whose task was lost are on the queue again", "queue", f.name, "count", n)
	if f.lostRetries != nil {
		f.lostRetries(n)
	}
}

// backoff is 50 ms after the first failure in a row, 100 after the second, 1 s at most.
func (f *feeder) backoff() time.Duration {
	f.failures++
	return min(25*time.Millisecond<<min(f.failures, 6), time.Second)
}
