package status

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// A probe that hangs and ignores its context is down in each round, and is not started again while it runs. The results of
// others do not depend on it.
func TestProber_Hanging(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var called, counted atomic.Int64
		answer := make(chan struct{})
		p := newProber(map[string]Probe{
			"storage": func(context.Context) error {
				called.Add(1)
				<-answer
				return nil
			},
			"redis": func(context.Context) error {
				counted.Add(1)
				return nil
			},
		})
		for range 50 {
			found := p.all(t.Context())
			if !errors.Is(found["storage"], context.DeadlineExceeded) || found["redis"] != nil {
				t.Fatalf("%v, want storage alone down", found)
			}
		}
		if called.Load() != 1 || counted.Load() != 50 {
			t.Errorf("called %d and %d times, want 1 and 50", called.Load(), counted.Load())
		}
		close(answer)
		synctest.Wait()
		if err := p.all(t.Context())["storage"]; err != nil || called.Load() != 2 {
			t.Errorf("after it has answered: %v, called %d times", err, called.Load())
		}
	})
}

// A caller that goes away, such as a client of /readyz, does not fail the probe for others.
func TestProber_CallerLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		p := newProber(map[string]Probe{"redis": func(ctx context.Context) error {
			select {
			case <-answer:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
		leaving, leave := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- p.all(leaving)["redis"] }()
		synctest.Wait()
		go func() { second <- p.all(t.Context())["redis"] }()
		synctest.Wait()
		leave()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the one that left: %v", err)
		}
		close(answer)
		if err := <-second; err != nil {
			t.Errorf("the other one: %v", err)
		}
	})
}
