package service

import (
	"context"
	"log/slog"
	"time"
)

// Loop is a service that runs a function repeatedly: at once when woken, otherwise at every
// interval.
type Loop struct {
	params LoopParams
	cancel context.CancelFunc
	done   chan struct{}
}

// LoopParams configure a Loop.
type LoopParams struct {
	Log      *slog.Logger
	Interval time.Duration
	// Wake triggers the next round at once. Optional.
	Wake <-chan struct{}
	// RunOnce is one round. It returns true if there is more to do at once. Its error is logged, at
	// most every 30 s for consecutive errors; the loop continues after ErrorDelay.
	RunOnce func(ctx context.Context) (more bool, err error)
	// ErrorDelay is the pause after an error (0 means 1 s), to limit the load on a failing
	// dependency.
	ErrorDelay time.Duration
}

// NewLoop returns a loop that is not running yet.
func NewLoop(p LoopParams) *Loop {
	if p.ErrorDelay == 0 {
		p.ErrorDelay = time.Second
	}
	return &Loop{params: p, done: make(chan struct{})}
}

// Start runs the first round in the background.
func (l *Loop) Start(ctx context.Context, _ func(error)) error {
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go l.run(ctx)
	return nil
}

// Stop ends the loop between two rounds, or cancels the running round.
func (l *Loop) Stop(ctx context.Context) error {
	l.cancel()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Loop) run(ctx context.Context) {
	defer close(l.done)
	failures := failureLog{log: l.params.Log}
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for ctx.Err() == nil {
		wait, wake := l.params.Interval, l.params.Wake
		more, err := Recovered(func() (bool, error) { return l.params.RunOnce(ctx) })
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failures.failed(err)
			wait, wake = l.params.ErrorDelay, nil // a wake-up must not shorten the pause
		default:
			failures.recovered()
			if more {
				continue
			}
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-wake:
		}
	}
}
