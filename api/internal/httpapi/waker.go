package httpapi

import (
	"context"
	"log/slog"
	"time"

	"email-gateway/shared/service"
)

// wakePause is the least time between two NOTIFYs. Dispatchers that are awake find
// the next emails by themselves.
const wakePause = 5 * time.Millisecond

// Waker tells the dispatchers that there are new emails: at once, and then at most
// once per pause however many there are. It is a part of the api's main function.
// A wake that gets lost costs the dispatchers' poll interval, nothing else.
type Waker struct {
	*service.Loop
	pending chan struct{}
}

// NewWaker makes a Waker that wakes by notify.
func NewWaker(log *slog.Logger, notify func(context.Context) error) *Waker {
	w := &Waker{pending: make(chan struct{}, 1)}
	w.Loop = service.NewLoop(service.LoopParams{
		Log:      log,
		Interval: time.Hour,
		Wake:     w.pending,
		RunOnce: func(ctx context.Context) (bool, error) {
			err := notify(ctx)
			_ = service.Pause(ctx, wakePause) // the loop sees the end of ctx itself
			return false, err
		},
	})
	return w
}

// Wake returns at once.
func (w *Waker) Wake() {
	select {
	case w.pending <- struct{}{}:
	default: // one is pending already
	}
}
