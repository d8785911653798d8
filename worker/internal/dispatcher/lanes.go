package dispatcher

import (
	"context"
	"sync/atomic"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
)

const (
	// relist is how long the result of a look at the lanes is good for, at least. It is kept
	// ten times as long as the look took, but no longer than maxRelist: a tenant that was quiet
	// must be seen well within the window.
	relist    = 100 * time.Millisecond
	maxRelist = time.Second
	// apart is the least time from one look to the next, and apartPerEmail is added for each
	// email that was taken since the last one, up to maxApart. Under load each api
	// wakes up to forty times a second, and a look and a round for a few dozen emails cost
	// Postgres more than the emails themselves; a single email never waits.
	apart         = 5 * time.Millisecond
	apartPerEmail = time.Millisecond
	maxApart      = 50 * time.Millisecond
	// newEvery is how often new rows are looked for that no wake-up named, such as those of
	// programs, and those that come before a listener notices that its connection is dead.
	// lateIDs is how much older than the row's commit its id may be, by Postgres's clock.
	newEvery = 200 * time.Millisecond
	lateIDs  = 2 * time.Second
	// listInterval is how often all lanes are listed. A part of it is how often the time of the last
	// listing is looked at: a look may have made one in between.
	listInterval = 30 * time.Second
	listParts    = 6
	// maxAge bounds the look for new rows.
	maxAge = time.Minute
)

// Wakes are what brings a look at the lanes forward. *store.Listener is one.
type Wakes interface {
	Woken() <-chan struct{}
	// Named returns the lanes named since it was last called; all = any lane.
	Named() (lanes []int64, all bool)
	// Listening reports whether wake-ups arrive. While they do not, each look lists all lanes.
	Listening() bool
}

// lanes knows the lanes of all queues, for all feeders: a wake-up starts a round of each,
// and one look answers them all. A look probes the lanes that are due, that were named, or
// that hold new rows, so its cost does not grow with the lanes that only hold later rows.
type lanes struct {
	outbox   Outbox
	wakes    Wakes // nil = none
	interval time.Duration
	agenda   *agenda
	outdated atomic.Pointer[time.Time] // a look begun before then lacks what has been accepted since
	taken    atomic.Int64              // emails, since the last look began
	turn     chan struct{}             // held by the feeder that uses or updates what follows

	open   bool // the provider's gate
	begun  time.Time
	until  time.Time
	newest time.Time // when new rows were last looked for
	listed time.Time // when the last full listing began
	lost   time.Time // a listing begun before then may lack rows that no later look finds
}

func newLanes(outbox Outbox, wakes Wakes, interval time.Duration) *lanes {
	if interval == 0 {
		interval = listInterval
	}
	return &lanes{outbox: outbox, wakes: wakes, interval: interval, agenda: newAgenda(), turn: make(chan struct{}, 1)}
}

// outdate makes the next feeder look again.
func (l *lanes) outdate() {
	now := time.Now()
	l.outdated.Store(&now)
}

// of returns a queue's live lanes, by company, and until when they need no new look.
func (l *lanes) of(ctx context.Context, queue string) (live []liveLane, until time.Time, err error) {
	if err := l.begin(ctx); err != nil {
		return nil, time.Time{}, err
	}
	defer l.end()
	if !l.fresh() {
		if err := l.look(ctx); err != nil {
			return nil, time.Time{}, err
		}
	}
	if !l.open && email.QueueWeight(queue) > 0 {
		return nil, l.until, nil
	}
	return l.agenda.of(queue), l.until, nil
}

func (l *lanes) begin(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *lanes) end() { <-l.turn }

func (l *lanes) fresh() bool {
	outdated := l.outdated.Load()
	return time.Now().Before(l.until) && (outdated == nil || l.begun.After(*outdated))
}

// look brings the agenda up to date.
func (l *lanes) look(ctx context.Context) error {
	spacing := min(apart+time.Duration(l.taken.Swap(0))*apartPerEmail, maxApart)
	if early := spacing - time.Since(l.begun); early > 0 {
		if err := service.Pause(ctx, early); err != nil {
			return err
		}
	}
	begun := time.Now()
	if err := l.update(ctx, begun); err != nil {
		l.lost = time.Now() // the lanes that were named are forgotten
		return err
	}
	l.begun = begun
	l.until = time.Now().Add(min(max(relist, 10*time.Since(begun)), maxRelist))
	return nil
}

func (l *lanes) update(ctx context.Context, begun time.Time) error {
	all := true
	var named []int64
	if l.wakes != nil {
		named, all = l.wakes.Named()
		all = all || !l.wakes.Listening()
	}
	if all || l.listed.IsZero() || l.listed.Before(l.lost) {
		found, err := l.outbox.WaitingLanes(ctx)
		if err != nil {
			return err
		}
		l.replace(found, begun)
		return nil
	}
	var made store.NewRows
	if age := begun.Sub(l.newest); age >= newEvery {
		made = store.NewRows{Within: min(age, maxAge) + lateIDs, Bounds: l.agenda.bounds()}
	}
	probes := l.agenda.due(begun, named)
	found, err := l.outbox.ProbeLanes(ctx, probes, made)
	if err != nil {
		return err
	}
	if found.Open && !l.open {
		l.lost = time.Now() // workers returned rows while the gate was shut
	}
	l.open = found.Open
	l.agenda.apply(probes, found.Lanes, begun)
	if made.Within > 0 {
		l.newest = begun
	}
	return nil
}

// replace takes a full listing. What looks begun after it have found stays.
func (l *lanes) replace(found store.WaitingLanes, begun time.Time) {
	if !l.begun.After(begun) {
		l.open = found.Open
	}
	if l.listed.Before(begun) {
		l.listed = begun
	}
	if l.newest.Before(begun) {
		l.newest = begun
	}
	l.agenda.replace(found.Lanes, begun)
}

// list is the full listing that finds what no look has: rows that were committed late, and
// those of lanes that opened without a wake-up. Feeders go on meanwhile.
func (l *lanes) list(ctx context.Context) (more bool, err error) {
	if err := l.begin(ctx); err != nil {
		return false, nil
	}
	recent := time.Since(l.listed) < l.interval-l.interval/listParts
	l.end()
	if recent {
		return false, nil
	}
	begun := time.Now()
	found, err := l.outbox.WaitingLanes(ctx)
	if err != nil {
		return false, err
	}
	if err := l.begin(ctx); err != nil {
		return false, nil
	}
	defer l.end()
	l.replace(found, begun)
	return false, nil
}
