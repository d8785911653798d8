package load

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"email-gateway/shared/service"
)

// Pace starts work at fixed times without waiting for earlier work (an open loop): delays of a
// gateway that falls behind are part of the figures.
type Pace struct {
	N int
	// every is the mean interval. With jitter each one starts at a random time of its interval, so
	// that it does not synchronize with periodic tasks.
	Every  time.Duration
	Jitter bool
}

// Run calls do n times, each in a goroutine of its own, and returns when all have returned.
func (p Pace) Run(ctx context.Context, do func(n int) error) error {
	// A fixed seed: the times are the same in all runs.
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it only determines when an email is submitted
	start := time.Now()
	var doing sync.WaitGroup
	errs := make(chan error, p.N)
	for n := range p.N {
		at := p.Every * time.Duration(n)
		if p.Jitter {
			at += time.Duration(random.Int64N(int64(p.Every)))
		}
		if err := service.Pause(ctx, at-time.Since(start)); err != nil {
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
	return <-errs // the first error, or nil
}
