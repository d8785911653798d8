package dispatcher

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store/dispatch"
	lanestore "email-gateway/shared/store/lane"
)

const (
	// relist is the minimum validity of the result of a poll. The result is valid for ten times the duration of the poll, at
	// most maxRelist. Lanes that a wake-up names are probed before that, see added.
	relist    = 100 * time.Millisecond
	maxRelist = time.Second
	// apart is the minimum time between two polls. Each email taken since the last poll adds
	// apartPerEmail, up to maxApart. Under load each api process sends up to forty wake-ups per
	// second, and a poll and a round for a few dozen emails cost Postgres more than the emails; a
	// single email never waits.
	apart         = 5 * time.Millisecond
	apartPerEmail = time.Millisecond
	maxApart      = 50 * time.Millisecond
	// newEvery is how often the poll also searches for new rows that no wake-up named, such as those inserted by programs, and
	// those that arrive before the listener notices a dead connection. A poll of named lanes does so only after newAtLeast,
	// since a wake-up should cost one statement. lateIDs is the maximum age of the id of a row at its commit, by Postgres's
	// clock.
	newEvery   = 200 * time.Millisecond
	newAtLeast = time.Second
	lateIDs    = 2 * time.Second
	// maxAge bounds the search for new rows: if the last search is older, a listing finds the rest.
	maxAge = time.Minute
	// maxKept is the maximum number of named lanes that are kept after failed polls.
	maxKept = 10_000
)

// Wakes trigger polls of the lanes. *lanestore.Listener implements it.
type Wakes interface {
	Woken() <-chan struct{}
	// Named returns the lanes named since the last call; all = any lane.
	Named() (lanes []lanestore.Named, all bool)
	// Listening reports whether wake-ups arrive. While they do not, each poll requests a listing.
	Listening() bool
}

// laneStore reads which lanes have due rows.
type laneStore interface {
	WaitingLanes(ctx context.Context) (dispatch.WaitingLanes, error)
	ProbeLanes(ctx context.Context, lanes []dispatch.LaneProbe) (dispatch.WaitingLanes, error)
	NewLanes(ctx context.Context, within time.Duration) ([]int64, error)
}

// lanes caches the lanes of all queues for all feeders. A wake-up starts a round of each feeder, and one poll serves them all.
// A poll probes the lanes that are due, that were named, or that have new rows, so its cost does not grow with the number of
// lanes that only have later rows. The full listing reads the other lanes in a separate loop: see list.
type lanes struct {
	store      laneStore
	wakes      Wakes // nil = polling only
	interval   time.Duration
	schedule   *schedule
	outdated   atomic.Pointer[time.Time] // the result of a poll that began before this time is outdated
	taken      atomic.Int64              // emails taken since the last poll began
	requests   chan struct{}             // wakes the listing loop
	becameLive chan struct{}             // receives when a listing has made lanes live
	resume     time.Time                 // when the listing loop may list again
	lock       chan struct{}             // mutex of the fields below

	breakerClosed bool
	startedAt     time.Time
	until         time.Time
	named         []lanestore.Named // lanes to probe
	probed        time.Time         // when the last probe of named lanes alone began
	newest        time.Time         // last search for new rows
	listed        time.Time         // when the last full listing began
	lost          time.Time         // set by request: listings that began earlier do not satisfy it
}

func newLanes(store laneStore, wakes Wakes, interval time.Duration) *lanes {
	if interval == 0 {
		interval = listInterval
	}
	return &lanes{
		store: store, wakes: wakes, interval: interval, schedule: newSchedule(),
		requests: make(chan struct{}, 1), becameLive: make(chan struct{}, 1), lock: make(chan struct{}, 1),
	}
}

// invalidate makes the next feeder poll again.
func (l *lanes) invalidate() {
	now := time.Now()
	l.outdated.Store(&now)
}

// live returns the live lanes of a queue, ordered by company, and until when they are valid.
func (l *lanes) live(ctx context.Context, queue string) (live []liveLane, until time.Time, err error) {
	if err := l.acquire(ctx); err != nil {
		return nil, time.Time{}, err
	}
	defer l.release()
	if !l.fresh() {
		if err := l.poll(ctx); err != nil {
			return nil, time.Time{}, err
		}
	}
	if !l.breakerClosed && email.QueueWeight(queue) > 0 {
		return nil, l.until, nil
	}
	return l.schedule.all(queue), l.until, nil
}

// added returns the lanes of the queue that have become live since its feeder last asked. While the result of the last poll is
// valid, a wake-up makes it probe only the named lanes, at most once per maxApart: a company with few emails does not wait
// until the lanes of many busy companies are polled again. It does not wait for a poll by another feeder. breakerOpen means
// that the circuit breaker has opened: the feeder must stop using its lanes.
func (l *lanes) added(ctx context.Context, queue string) (lanes []liveLane, breakerOpen bool, err error) {
	select {
	case l.lock <- struct{}{}:
		err = l.probeNamed(ctx)
		breakerOpen = !l.breakerClosed && email.QueueWeight(queue) > 0
		l.release()
		if err != nil || breakerOpen {
			return nil, breakerOpen, err
		}
	default:
	}
	return l.schedule.added(queue), false, nil
}

// probeNamed probes the lanes that were named since the last poll. A wake-up that names no lanes is left to the next poll.
func (l *lanes) probeNamed(ctx context.Context) error {
	outdated := l.outdated.Load()
	last := l.startedAt
	if l.probed.After(last) {
		last = l.probed
	}
	if outdated == nil || last.After(*outdated) || time.Since(last) < maxApart {
		return nil
	}
	l.probed = time.Now()
	l.applyWakeups()
	if len(l.named) == 0 {
		return nil
	}
	return l.probe(ctx, l.probed, l.schedule.probes(l.probed, l.named))
}

// applyWakeups adds the lanes that wake-ups have named since its last call. It requests a listing if a wake-up named no
// lanes, and while wake-ups do not arrive.
func (l *lanes) applyWakeups() {
	if l.wakes == nil {
		l.request()
		return
	}
	named, all := l.wakes.Named()
	if l.named = append(l.named, named...); len(l.named) > maxKept {
		l.named, all = nil, true
	}
	if all || !l.wakes.Listening() {
		l.request()
	}
}

func (l *lanes) acquire(ctx context.Context) error {
	select {
	case l.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *lanes) release() { <-l.lock }

func (l *lanes) fresh() bool {
	outdated := l.outdated.Load()
	return time.Now().Before(l.until) && (outdated == nil || l.startedAt.After(*outdated))
}

// poll asks Postgres which lanes have due rows and updates the schedule.
func (l *lanes) poll(ctx context.Context) error {
	spacing := min(apart+time.Duration(l.taken.Swap(0))*apartPerEmail, maxApart)
	if early := spacing - time.Since(l.startedAt); early > 0 {
		if err := service.Pause(ctx, early); err != nil {
			return err
		}
	}
	start := time.Now()
	if err := l.update(ctx, start); err != nil {
		return err
	}
	l.startedAt = start
	l.until = time.Now().Add(min(max(relist, 10*time.Since(start)), maxRelist))
	return nil
}

func (l *lanes) update(ctx context.Context, start time.Time) error {
	l.applyWakeups()
	named := slices.Clone(l.named)
	age := start.Sub(l.newest)
	if age > maxAge {
		l.request()
	}
	search := age >= newEvery && len(named) == 0 || age >= newAtLeast
	if search {
		made, err := l.store.NewLanes(ctx, min(age, maxAge)+lateIDs)
		if err != nil {
			return err
		}
		for _, id := range made {
			named = append(named, lanestore.Named{ID: id})
		}
	}
	if err := l.probe(ctx, start, append(l.schedule.probes(start, named), l.schedule.due(start)...)); err != nil {
		return err
	}
	if search {
		l.newest = start
	}
	return nil
}

func (l *lanes) probe(ctx context.Context, start time.Time, probes []dispatch.LaneProbe) error {
	found, err := l.store.ProbeLanes(ctx, probes)
	if err != nil {
		return err
	}
	if found.BreakerClosed && !l.breakerClosed && !l.listed.IsZero() {
		l.request() // workers returned rows while the circuit breaker was open
	}
	l.named = nil
	l.breakerClosed = found.BreakerClosed
	l.schedule.apply(probes, found.Lanes, start)
	return nil
}
