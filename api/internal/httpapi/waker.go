package httpapi

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"email-gateway/shared/service"
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
// A wake that gets lost costs the dispatchers' poll interval, nothing else.
type Waker struct {
	*service.Loop
	pending chan struct{}
	wakes   atomic.Int64 // since the last NOTIFY
}

// NewWaker makes a Waker that wakes by notify.
func NewWaker(log *slog.Logger, notify func(context.Context) error) *Waker {
	w := &Waker{pending: make(chan struct{}, 1)}
	w.Loop = service.NewLoop(service.LoopParams{
		Log:      log,
		Interval: time.Hour,
		Wake:     w.pending,
		RunOnce: func(ctx context.Context) (bool, error) {
			wakes := w.wakes.Swap(0)
			err := notify(ctx)
			_ = service.Pause(ctx, min(wakePause+time.Duration(wakes)*perWake, maxWakePause)) // the loop sees the end of ctx itself
			return false, err
		},
	})
	return w
}

// Wake returns at once.
func (w *Waker) Wake() {
	w.wakes.Add(1)
	select {
	case w.pending <- struct{}{}:
	default: // one is pending already
	}
}
