package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/service"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/queue"
)

const (
	// batch bounds what one round takes. Some rounds of this size per second use the
	// database well, and each ends within a tenth of a second.
	batch = 1000
	// overlap is how many batches are on their way at once if there is room for them: while
	// one waits for the broker, Postgres finds or marks the next.
	overlap = 2
	// trial is how much is taken after a failure: the broker may answer and still take no
	// task. With so many of them some tasks that are refused do not stop their lane, and taking
	// and releasing them costs Postgres little.
	trial = 100
	// fullPause is how soon a full queue is measured again: at 1,000 emails per second
	// 15 of them have gone by then, which is next to nothing of a window of 1,000.
	fullPause = 15 * time.Millisecond
	// busyPause is when an email is looked at again whose last task is still in work.
	busyPause = 200 * time.Millisecond
	// stopTime bounds the statements of a round that a stop meets: what was taken is released.
	stopTime = 5 * time.Second
	// releaseTime bounds the release of a reservation, which expires after 5 s.
	releaseTime = time.Second
	// lookTime is how old a reservation may be when rows are taken for it. A look at the lanes that
	// takes longer, behind a slow Postgres, is followed by a new reservation: the rest of batchTime is
	// what the take and the publishing need.
	lookTime = time.Second
	// idleAfter is when an idle feeder confirms its last batch. Under load the next batch does.
	idleAfter = time.Second
)

// feeder keeps one queue filled up to its window.
type feeder struct {
	name      string
	sources   [overlap]source
	queue     queue.Publisher
	payload   payload
	window    func() int // how many tasks the queue should hold
	load      *load      // of recipients; nil = a task is a task
	saw       func(tasks int)
	step      func(tasks int) int // how many tasks a round adds to so many; nil = as many as there is room for
	lanes     *lanes
	live      []liveLane // those of them that may still hold due emails
	liveUntil time.Time
	turns     turns
	outage    *outage
	failures  int       // rounds in a row
	taken     time.Time // when a batch was last taken that idle has not confirmed
	metrics   queueMetrics
	tracer    telemetry.Tracer
	log       *slog.Logger
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
// window then costs the database nothing, and while the broker is away no row is taken.
func (f *feeder) round(ctx context.Context) (more bool, err error) {
	window, most := f.window(), overlap*batch
	if f.failures > 0 {
		most = trial
	}
	reserved := time.Now()
	room, err := f.queue.Reserve(ctx, f.name, window, most)
	if err != nil {
		f.metrics.unknownDepth() // the last value would be taken for what is true now
		return false, err
	}
	f.metrics.depth(room.Depth, window)
	if f.saw != nil {
		f.saw(room.Depth)
	}
	if room.Granted == 0 {
		if err := f.idle(ctx); err != nil {
			return false, err
		}
		return service.Pause(ctx, fullPause) == nil, nil
	}
	granted := room.Granted
	if f.step != nil {
		granted = min(granted, f.step(room.Depth))
	}
	more, err = f.fill(ctx, granted, reserved)
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	return more, errors.Join(err, f.queue.Release(releasing, f.name))
}

// fill takes what is due in the live lanes, room rows at most, which were reserved at that time.
func (f *feeder) fill(ctx context.Context, room int, reserved time.Time) (more bool, err error) {
	if len(f.live) == 0 || time.Now().After(f.liveUntil) {
		f.live, f.liveUntil, err = f.lanes.of(ctx, f.name)
		if err != nil {
			return false, err
		}
		if len(f.live) == 0 {
			return false, f.idle(ctx)
		}
	}
	if time.Since(reserved) > lookTime {
		return true, nil
	}
	f.taken = time.Now()
	if err := f.takeAll(ctx, room, reserved); err != nil {
		f.live = nil // a lane may hold again what had been taken of it
		return false, err
	}
	// What came into the others since they were listed has a wake-up of its own. None left
	// although none was taken: another dispatcher has them.
	return len(f.live) > 0, nil
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

// takeAll moves at most room rows, in overlap batches, and takes the lanes that gave fewer rows
// than they might off the list.
func (f *feeder) takeAll(ctx context.Context, room int, reserved time.Time) error {
	flights := min(max(room/batch, 1), overlap)
	dry := make([]map[int64]bool, flights)
	brought := make([]map[uuid.UUID]int, flights)
	errs := make([]error, flights)
	var flying sync.WaitGroup
	for i := range flights {
		chosen := f.turns.share(f.live, min(room, batch))
		flying.Go(func() {
			dry[i], brought[i], errs[i] = f.move(ctx, f.sources[i], chosen, reserved)
			if errs[i] != nil {
				f.lanes.agenda.doubt(f.name, chosen)
			}
		})
	}
	flying.Wait()
	for _, recipients := range brought {
		f.turns.charge(f.load != nil && f.load.several(), recipients)
	}
	for _, unused := range f.sources[flights:] {
		errs = append(errs, unused.idle(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	f.live = slices.DeleteFunc(f.live, func(l liveLane) bool {
		return slices.ContainsFunc(dry, func(lanes map[int64]bool) bool { return lanes[l.id] })
	})
	return nil
}

// move takes due rows of these lanes and publishes them, and says which lanes gave fewer than
// they might, and how many recipients the emails of each company had. A stop does not interrupt the
// statements, only the publishing.
func (f *feeder) move(ctx context.Context, from source, chosen []visit, reserved time.Time) (dry map[int64]bool, brought map[uuid.UUID]int, err error) {
	committing, end := outlast(ctx, stopTime)
	defer end()
	begun := time.Now()
	taken, err := from.take(committing, laneTurns(chosen))
	if err != nil {
		return nil, nil, err
	}
	asked, companies := 0, make(map[int64]uuid.UUID, len(chosen))
	for _, v := range chosen {
		asked += v.most
		companies[v.id] = v.company
	}
	fit, released := len(taken.Rows), 0
	if fit > 0 {
		if f.load != nil {
			fit = f.load.fit(taken.Rows, asked)
		}
		if released, err = f.publishBatch(ctx, committing, from, taken, fit, reserved); err != nil {
			return nil, nil, err
		}
		f.metrics.round(len(taken.Rows), time.Since(begun))
		f.lanes.taken.Add(int64(len(taken.Rows)))
	}
	brought = make(map[uuid.UUID]int)
	for _, row := range taken.Rows[:fit] {
		brought[companies[row.LaneID]] += recipients(row.Payload)
	}
	if released > 0 { // what was released may be a lane's only row
		f.lanes.agenda.doubt(f.name, chosen)
		return nil, brought, nil
	}
	count := make(map[int64]int, len(chosen))
	for _, row := range taken.Rows {
		count[row.LaneID]++
	}
	f.lanes.agenda.took(f.name, chosen, count)
	dry = make(map[int64]bool)
	for _, v := range chosen {
		if count[v.id] < v.most {
			dry[v.id] = true
		}
	}
	return dry, brought, nil
}

// outlast makes a context that ends a time after ctx.
func outlast(ctx context.Context, by time.Duration) (context.Context, func()) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(by, cancel) })
	return longer, func() { stop(); cancel() }
}

// backoff is 50 ms after the first failure in a row, doubled with each further one, at most 500 ms:
// the queue is filled again at most that long after the broker is back.
func (f *feeder) backoff() time.Duration {
	f.failures++
	return min(25*time.Millisecond<<min(f.failures, 5), 500*time.Millisecond)
}
