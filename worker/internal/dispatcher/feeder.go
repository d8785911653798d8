package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

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
	// overlap is how many batches are on their way at once if there is room for them: while
	// one waits for the broker, Postgres finds or marks the next.
	overlap = 2
	// fullPause is how soon a full queue is measured again: at 1,000 emails per second
	// 15 of them have gone by then, which is next to nothing of a window of 1,000.
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
	lanes     *lanes
	live      []int64 // those of them that may still hold due emails
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

// round moves a batch, or some at once. It asks the broker before the database: a full
// window then costs the database nothing.
func (f *feeder) round(ctx context.Context) (more bool, err error) {
	depth, err := f.queue.Depth(ctx, f.name)
	if err != nil {
		f.metrics.tasks.Set(math.NaN()) // the last value would be taken for what is true now
		return false, err
	}
	window := f.window()
	f.metrics.depth(depth, window)
	free := window - depth
	if free <= 0 {
		return service.Pause(ctx, fullPause) == nil, nil
	}
	if len(f.live) == 0 || time.Now().After(f.liveUntil) {
		f.live, f.liveUntil, err = f.lanes.of(ctx, f.name)
		if err != nil || len(f.live) == 0 {
			return false, err
		}
	}
	if err := f.takeAll(ctx, free); err != nil {
		f.live = nil // a lane may hold again what had been taken of it
		return false, err
	}
	// What came into the others since they were listed has a wake-up of its own. None left
	// although none was taken: another dispatcher has them.
	return len(f.live) > 0, nil
}

// takeAll moves at most free emails, or overlap batches, and takes the lanes that have run
// dry off the list.
func (f *feeder) takeAll(ctx context.Context, free int) error {
	flights := min(max(free/batch, 1), overlap)
	dry := make([][]int64, flights)
	errs := make([]error, flights)
	var flying sync.WaitGroup
	for i := range flights {
		chosen, perLane := f.turns.share(f.live, min(free, batch))
		flying.Go(func() { dry[i], errs[i] = f.take(ctx, chosen, perLane) })
	}
	flying.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	f.live = slices.DeleteFunc(f.live, func(lane int64) bool {
		return slices.ContainsFunc(dry, func(lanes []int64) bool { return slices.Contains(lanes, lane) })
	})
	return nil
}

// take moves at most perLane emails of each of these lanes, and says which of them gave
// fewer. It is one transaction: the rows that are due are locked, their tasks are put on
// the queue (enqueue), and what stands there is marked ENQUEUED.
func (f *feeder) take(ctx context.Context, chosen []int64, perLane int) (dry []int64, err error) {
	brought := make(map[int64]int, len(chosen))
	retries := 0
	begun := time.Now()
	taken, err := f.outbox.DispatchDue(ctx, chosen, perLane, lost, func(ctx context.Context, due []store.DueRow) (done store.Dispatched, err error) {
		for _, row := range due {
			brought[row.LaneID]++
		}
		done, retries, err = f.enqueue(ctx, due)
		return done, err
	})
	if err != nil {
		return nil, err
	}
	f.metrics.round(taken, time.Since(begun))
	f.lanes.took(taken)
	f.tellLost(retries)
	for _, lane := range chosen {
		if brought[lane] < perLane {
			dry = append(dry, lane)
		}
	}
	return dry, nil
}

// tellLost counts and logs the retries that were lost and stand on the queue again.
func (f *feeder) tellLost(n int) {
	if n == 0 {
		return
	}
	f.metrics.lost.Add(float64(n))
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
