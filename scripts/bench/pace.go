package bench

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"email-gateway/shared/service"
)

// pace offers work at its own times whatever becomes of it (an open loop): a gateway that
// falls behind finds no mercy, and its delay is in the figures.
type pace struct {
	n int
	// every is the mean time between two. With jitter each one comes at a random moment
	// of its own interval, so that it keeps no step with anything that ticks.
	every  time.Duration
	jitter bool
}

// run calls do n times, each in a goroutine of its own, and returns when all have ended.
func (p pace) run(ctx context.Context, do func(n int) error) error {
	// Always the same moments, so that two runs differ in what they meet only.
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it decides when an email is offered
	begun := time.Now()
	var doing sync.WaitGroup
	errs := make(chan error, p.n)
	for n := range p.n {
		at := p.every * time.Duration(n)
		if p.jitter {
			at += time.Duration(random.Int64N(int64(p.every)))
		}
		if err := service.Pause(ctx, at-time.Since(begun)); err != nil {
			errs <- err
			break
		}
		doing.Go(func() {
			if err := do(n); err != nil {
				errs <- err
			}
		})
	}
	doing.Wait()
	close(errs)
	return <-errs // the first; nil if there is none
}
