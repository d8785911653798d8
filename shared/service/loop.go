package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"email-gateway/shared/email"
)

// Loop is a service that does one thing over and over: at once when woken, else
// every interval.
type Loop struct {
	params LoopParams
	cancel context.CancelFunc
	done   chan struct{}
}

// LoopParams make a Loop.
type LoopParams struct {
	Log      *slog.Logger
	Interval time.Duration
	// Wake brings the next round forward; nil if nothing does.
	Wake <-chan struct{}
	// RunOnce is one round. It returns true when there is more to do right now. Its
	// error is logged, of many in a row one every 30 s; the loop goes on after ErrorDelay.
	RunOnce func(ctx context.Context) (more bool, err error)
	// ErrorDelay is the pause after an error (0 means 1 s), so that a broken
	// dependency is asked again without being hammered.
	ErrorDelay time.Duration
}

// NewLoop makes a loop that is not running yet.
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

// Stop ends the loop between two rounds, or cancels the round it is in.
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
	failures := trouble{log: l.params.Log}
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for ctx.Err() == nil {
		wait, wake := l.params.Interval, l.params.Wake
		more, err := l.round(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failures.more(err)
			wait, wake = l.params.ErrorDelay, nil // whoever wakes us does not know that it is broken
		default:
			failures.end()
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

// round keeps a panic in one round from ending the process that many other emails
// depend on.
func (l *Loop) round(ctx context.Context) (more bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.Join(err, fmt.Errorf("panic: %s\n%s", email.MaskText(fmt.Sprint(p)), debug.Stack()))
		}
	}()
	return l.params.RunOnce(ctx)
}
