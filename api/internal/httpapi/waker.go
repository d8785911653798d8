package httpapi

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"email-gateway/shared/service"
	"email-gateway/shared/store"
)

// wakePause is the least time between two NOTIFYs, and perWake is added for each wake since
// the last one, up to maxWakePause. Dispatchers that are awake find the next emails by
// themselves, and under load look no more often than that; a NOTIFY is a commit, and rouses
// every feeder of every dispatcher.
const (
	wakePause    = 5 * time.Millisecond
	perWake      = time.Millisecond
	maxWakePause = 25 * time.Millisecond
)

// Waker tells the dispatchers that there are new emails: at once, and then at most
// once per pause however many there are. It is a part of the api's main function.
// After a wake that was lost, dispatchers find new rows within their poll interval, and rows that
// were moved or resumed by their next full listing.
type Waker struct {
	*service.Loop
	pending chan struct{}

	mu    sync.Mutex
	wakes int // since the last NOTIFY
	named map[store.Lanes]struct{}
	all   bool // one named none
}

// NewWaker makes a Waker that wakes by notify, which gets no lanes when it is to wake for all.
func NewWaker(log *slog.Logger, notify func(context.Context, []store.Lanes) error) *Waker {
	// What a process before this one accepted last may have had no wake-up.
	w := &Waker{pending: make(chan struct{}, 1), named: make(map[store.Lanes]struct{}), all: true}
	w.Loop = service.NewLoop(service.LoopParams{
		Log:      log,
		Interval: time.Hour,
		Wake:     w.pending,
		RunOnce: func(ctx context.Context) (bool, error) {
			lanes, wakes, some := w.take()
			if !some { // they were taken with the last ones
				return false, nil
			}
			err := notify(ctx, lanes)
			if err != nil {
				w.Wake()
			}
			_ = service.Pause(ctx, min(wakePause+time.Duration(wakes)*perWake, maxWakePause)) // the loop sees the end of ctx itself
			return false, err
		},
	})
	return w
}

// take returns what has come since it was last called: the lanes, none of them for any lane, and the
// number of wakes; some is false if nothing has.
func (w *Waker) take() (lanes []store.Lanes, wakes int, some bool) {
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

// Wake names the lanes in which there is work, or none of them for any lane. It returns at once.
func (w *Waker) Wake(lanes ...store.Lanes) {
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
