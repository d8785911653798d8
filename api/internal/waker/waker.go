// Package waker notifies the dispatchers of new emails, without a NOTIFY for each of them.
package waker

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"email-gateway/shared/service"
	"email-gateway/shared/store/lane"
)

// wakePause is the minimum time between two NOTIFYs; perWake is added for each wake since the
// last one, up to maxWakePause. Under load, dispatchers poll at least that often anyway, and a
// NOTIFY is a commit that wakes every feeder of every dispatcher.
const (
	wakePause    = 5 * time.Millisecond
	perWake      = time.Millisecond
	maxWakePause = 25 * time.Millisecond
)

// Waker notifies the dispatchers of new emails: immediately, and then at most once per pause.
// It is started by the api's main function. If a notification is lost, dispatchers find new rows
// within their poll interval, and rescheduled or resumed rows with their next full listing.
type Waker struct {
	*service.Loop
	pending chan struct{}

	mu    sync.Mutex
	wakes int // since the last NOTIFY
	named map[lane.Lanes]struct{}
	all   bool // a wake named no lane
}

// New returns a Waker that calls notify, without lanes if it is to wake all.
func New(log *slog.Logger, notify func(context.Context, []lane.Lanes) error) *Waker {
	// Emails that an earlier process accepted last may not have been notified.
	w := &Waker{pending: make(chan struct{}, 1), named: make(map[lane.Lanes]struct{}), all: true}
	w.Loop = service.NewLoop(service.LoopParams{
		Log:      log,
		Interval: time.Hour,
		Wake:     w.pending,
		RunOnce: func(ctx context.Context) (bool, error) {
			lanes, wakes, some := w.take()
			if !some { // already included in the last notification
				return false, nil
			}
			err := notify(ctx, lanes)
			if err != nil {
				w.Wake()
			}
			_ = service.Pause(ctx, min(wakePause+time.Duration(wakes)*perWake, maxWakePause)) // the loop checks ctx itself
			return false, err
		},
	})
	return w
}

// take returns and resets the wakes since the last call: the lanes (none = all) and the number of
// wakes; some is false if there were none.
func (w *Waker) take() (lanes []lane.Lanes, wakes int, some bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.all {
		lanes = slices.Collect(maps.Keys(w.named))
	}
	wakes, some = w.wakes, w.all || len(w.named) > 0
	clear(w.named)
	w.wakes, w.all = 0, false
	return lanes, wakes, some
}

// Wake wakes the dispatchers for the lanes, or for all if none is given. It does not block.
func (w *Waker) Wake(lanes ...lane.Lanes) {
	w.mu.Lock()
	w.wakes++
	w.all = w.all || len(lanes) == 0
	for _, l := range lanes {
		w.named[l] = struct{}{}
	}
	w.mu.Unlock()
	select {
	case w.pending <- struct{}{}:
	default: // one is pending already
	}
}
