package dispatcher

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"email-gateway/shared/service"
)

const (
	// relist is how long a list of live lanes is good for, at least. A long list is kept
	// ten times as long as it took to make, since making it costs as much as a few rounds,
	// but no longer than maxRelist: a tenant that was quiet must be seen well within the
	// window.
	relist    = 100 * time.Millisecond
	maxRelist = time.Second
	// apart is the least time from one list to the next, and apartPerEmail is added for each
	// that was taken since the last one, up to maxApart. Under load each api
	// wakes up to forty times a second, and a list and a round for a few dozen emails cost
	// Postgres more than the emails themselves; one that comes by itself never waits.
	apart         = 5 * time.Millisecond
	apartPerEmail = time.Millisecond
	maxApart      = 50 * time.Millisecond
)

// lanes lists the live lanes of all queues at once, for all feeders: a wake-up rouses
// every one of them, and one list answers them all.
type lanes struct {
	outbox   Outbox
	outdated atomic.Pointer[time.Time] // a list begun before then lacks what has been accepted since
	taken    atomic.Int64              // emails, since the list was begun
	turn     chan struct{}             // held by whoever looks at the list, or makes one

	live  map[string][]int64 // by queue
	begun time.Time
	until time.Time
}

func newLanes(outbox Outbox) *lanes {
	return &lanes{outbox: outbox, turn: make(chan struct{}, 1)}
}

// outdate makes the next feeder that asks list anew.
func (l *lanes) outdate() {
	now := time.Now()
	l.outdated.Store(&now)
}

// took counts rows that a feeder has taken.
func (l *lanes) took(n int) { l.taken.Add(int64(n)) }

// of returns a queue's live lanes, sorted, and until when they are worth going by.
func (l *lanes) of(ctx context.Context, queue string) (live []int64, until time.Time, err error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, time.Time{}, context.Cause(ctx)
	}
	if !l.fresh() {
		if err := l.list(ctx); err != nil {
			return nil, time.Time{}, err
		}
	}
	return slices.Clone(l.live[queue]), l.until, nil
}

func (l *lanes) fresh() bool {
	outdated := l.outdated.Load()
	return time.Now().Before(l.until) && (outdated == nil || l.begun.After(*outdated))
}

func (l *lanes) list(ctx context.Context) error {
	spacing := min(apart+time.Duration(l.taken.Swap(0))*apartPerEmail, maxApart)
	if early := spacing - time.Since(l.begun); early > 0 {
		if err := service.Pause(ctx, early); err != nil {
			return err
		}
	}
	begun := time.Now()
	live, err := l.outbox.LiveLanes(ctx)
	if err != nil {
		return err
	}
	l.live, l.begun = live, begun
	l.until = time.Now().Add(min(max(relist, 10*time.Since(begun)), maxRelist))
	return nil
}
