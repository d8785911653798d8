package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/service"
)

const (
	// batch is the maximum number of rows per batch. A few batches of this size per second use the database efficiently, and
	// each takes less than 0.1 s.
	batch = 1000
	// overlap is how many batches run concurrently while lanes have more rows than one batch takes, and there is room for them:
	// while one batch waits for the broker, Postgres takes or marks the next one.
	overlap = 2
	// trial is the batch size after a failure, since a broker that answers may still refuse tasks. With this many rows, a few
	// refused tasks do not block their lane, and taking and releasing the rows costs Postgres little.
	trial = 100
	// fullPause is the delay before a full queue is measured again: at 1,000 emails per second, 15
	// of a window of 750 have left by then.
	fullPause = 15 * time.Millisecond
	// busyPause delays an email whose last task is still being processed.
	busyPause = 200 * time.Millisecond
	// stopTime bounds the statements that release the taken rows of a round during a stop.
	stopTime = 5 * time.Second
	// releaseTime bounds the release of a reservation, which expires after 5 s.
	releaseTime = time.Second
	// pollTime is the maximum age of a reservation when rows are taken for it. If Postgres is slow and the poll takes longer,
	// the feeder reserves again: take and publish need the rest of batchTime.
	pollTime = time.Second
	// idleAfter is the idle time after which a feeder confirms its last batch. Under load the next take
	// confirms the batch; an idle feeder uses a statement of its own.
	idleAfter = time.Second
)

// feeder keeps one queue filled up to its window.
type feeder struct {
	name      string
	store     batchStore
	sources   [overlap]source
	publisher publisher
	reachable atomic.Bool // the last reservation succeeded
	size      sizer
	live      liveLanes
	outage    *outage
	failures  int       // consecutive failed rounds
	taken     time.Time // when a batch was last taken that idle has not confirmed
	metrics   queueMetrics
	log       *slog.Logger
}

// runOnce runs a round and handles its error: outage logs it once per outage, the loop would log it once per round.
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

// round moves one or more batches. It measures the queue before it reads the database, so that a full window costs the database
// nothing, and no row is taken during a broker outage.
func (f *feeder) round(ctx context.Context) (more bool, err error) {
	window, most := f.size.window(), overlap*batch
	if f.failures > 0 {
		most = trial
	}
	reserved := time.Now()
	room, err := f.publisher.queue.Reserve(ctx, f.name, window, most)
	f.reachable.Store(err == nil)
	if err != nil {
		f.metrics.unknownDepth() // the last value would look current
		return false, err
	}
	f.metrics.depth(room.Depth, window)
	f.size.record(room.Depth)
	if room.Granted == 0 {
		if err := f.idle(ctx); err != nil {
			return false, err
		}
		return service.Pause(ctx, fullPause) == nil, nil
	}
	more, err = f.fill(ctx, min(room.Granted, f.size.step(room.Depth)), reserved)
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	return more, errors.Join(err, f.publisher.queue.Release(releasing, f.name))
}

// fill moves up to room due rows of the live lanes. reserved is the time of the reservation.
func (f *feeder) fill(ctx context.Context, room int, reserved time.Time) (more bool, err error) {
	if err := f.live.refresh(ctx); err != nil {
		return false, err
	}
	if len(f.live.all) == 0 {
		f.live.more = false
		return false, f.idle(ctx)
	}
	if time.Since(reserved) > pollTime {
		return true, nil
	}
	f.taken = time.Now()
	if err := f.takeAll(ctx, room, reserved); err != nil {
		f.live.all, f.live.more = nil, false // the rows may be back in their lanes
		return false, err
	}
	// Rows that were added to other lanes since these were listed come with a wake-up. If no row was taken and no lane is left,
	// another dispatcher has taken the rows.
	f.live.more = len(f.live.all) > 0
	return f.live.more, nil
}

// idle confirms the last batch of each source, once.
func (f *feeder) idle(ctx context.Context) error {
	if f.taken.IsZero() || time.Since(f.taken) < idleAfter {
		return nil
	}
	f.taken = time.Time{}
	return f.confirm(ctx)
}

func (f *feeder) confirm(ctx context.Context) error {
	var errs []error
	for _, s := range f.sources {
		errs = append(errs, s.idle(ctx))
	}
	return errors.Join(errs...)
}

// takeAll moves at most room rows in up to overlap concurrent batches, and removes lanes with fewer rows than requested from
// the live list. It runs more than one batch only if the last ones left due rows: after a wake-up for a few emails a second
// batch would find none.
func (f *feeder) takeAll(ctx context.Context, room int, reserved time.Time) error {
	concurrent := 1
	if f.live.more {
		concurrent = min(max(room/batch, 1), overlap)
	}
	drained := make([]map[int64]bool, concurrent)
	perCompany := make([]map[uuid.UUID]int, concurrent)
	errs := make([]error, concurrent)
	var moving sync.WaitGroup
	for i := range concurrent {
		chosen := f.live.roundRobin.share(f.live.all, min(room, batch))
		moving.Go(func() {
			drained[i], perCompany[i], errs[i] = f.move(ctx, f.sources[i], chosen, reserved)
			if errs[i] != nil {
				f.live.recheck(chosen)
			}
		})
	}
	moving.Wait()
	for _, recipients := range perCompany {
		f.live.roundRobin.addRecipients(f.size.several(), recipients)
	}
	for _, unused := range f.sources[concurrent:] {
		errs = append(errs, unused.idle(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	f.live.remove(drained)
	return nil
}

// move takes due rows of these lanes and publishes them. It returns the lanes with fewer rows than requested, and the number of
// recipients per company. A stop interrupts the publishing, but not the statements.
func (f *feeder) move(ctx context.Context, from source, chosen []laneShare, reserved time.Time) (drained map[int64]bool, perCompany map[uuid.UUID]int, err error) {
	committing, end := withExtraTime(ctx, stopTime)
	defer end()
	start := time.Now()
	taken, err := from.take(committing, laneTakes(chosen))
	if err != nil {
		return nil, nil, err
	}
	asked, companies := 0, make(map[int64]uuid.UUID, len(chosen))
	for _, v := range chosen {
		asked += v.limit
		companies[v.id] = v.company
	}
	fit, released := len(taken.Rows), 0
	if fit > 0 {
		fit = f.size.fit(taken.Rows, asked)
		if released, err = f.publishBatch(ctx, committing, from, taken, fit, reserved); err != nil {
			return nil, nil, err
		}
		f.metrics.round(len(taken.Rows), time.Since(start))
		f.live.delayPoll(len(taken.Rows))
	}
	perCompany = make(map[uuid.UUID]int)
	for _, row := range taken.Rows[:fit] {
		perCompany[companies[row.LaneID]] += recipients(row.Payload)
	}
	if released > 0 { // a released row may be its lane's only one
		f.live.recheck(chosen)
		return nil, perCompany, nil
	}
	count := make(map[int64]int, len(chosen))
	for _, row := range taken.Rows {
		count[row.LaneID]++
	}
	f.live.took(chosen, count)
	drained = make(map[int64]bool)
	for _, v := range chosen {
		if count[v.id] < v.limit {
			drained[v.id] = true
		}
	}
	return drained, perCompany, nil
}

// withExtraTime returns a context that ends when the duration by has passed since the end of ctx.
func withExtraTime(ctx context.Context, by time.Duration) (context.Context, func()) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(by, cancel) })
	return longer, func() { stop(); cancel() }
}

// backoff returns the delay after a failure: 50 ms after the first consecutive one, doubled up to 500 ms. That is also the
// longest delay after the broker has recovered.
func (f *feeder) backoff() time.Duration {
	f.failures++
	return min(25*time.Millisecond<<min(f.failures, 5), 500*time.Millisecond)
}
