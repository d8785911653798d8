package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
)

// maxPendingResults bounds the results that wait for other transactions' locks in the background.
// Further ones wait in their task.
const maxPendingResults = 256

// pendingResults holds the attempts whose result cannot be recorded because another transaction has locked
// the row. Their tasks have ended; otherwise one company's locked rows would occupy all workers.
type pendingResults struct {
	slots   chan struct{}
	running sync.WaitGroup
}

func newPendingResults() *pendingResults {
	return &pendingResults{slots: make(chan struct{}, maxPendingResults)}
}

// recordLater repeats the write in the background and reports whether there was a slot for it. If
// the worker dies meanwhile, the rescuer finds the email when its lease ends.
func (p *Pipeline) recordLater(log *slog.Logger, a *attempt, t outbox.Transition, k *kept) bool {
	select {
	case p.pendingResults.slots <- struct{}{}:
	default:
		return false
	}
	t.TaskWaits = false // the task ends now
	p.pendingResults.running.Go(func() {
		defer func() { <-p.pendingResults.slots }()
		done, err := p.retryUntilAnswered(context.Background(), &t)
		applied, err := p.recorded(log, a, &t, k, done, err)
		switch {
		case err != nil:
			log.Error("the result of an attempt was not recorded", "error", email.MaskText(err.Error()))
		case applied && t.Status.Final():
			p.ended(log, a, t.Status)
		case applied:
			p.wakeLane(context.Background(), a, t.Delay)
			p.observe(log, a, t.Status, slog.LevelWarn)
		}
	})
	return true
}

// Start implements service.Service: there is nothing to start.
func (p *Pipeline) Start(context.Context, func(error)) error { return nil }

// Stop waits for the results that are being recorded in the background. Call it after the consumer
// has stopped.
func (p *Pipeline) Stop(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		p.pendingResults.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errors.New("results of locked emails were not recorded: the rescuer handles them when their leases end")
	}
}
