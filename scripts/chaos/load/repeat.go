package load

import (
	"context"
	"sync"
	"time"

	"email-gateway/shared/service"
)

// repeat calls work with 0, 1, 2 …, with a pause before each call, until offering ends. Each call has
// a goroutine, so that none waits for the response to another; there are at most limit of them.
func repeat(offering context.Context, pause time.Duration, limit int, work func(n int)) {
	var working sync.WaitGroup
	defer working.Wait()
	slots := make(chan struct{}, limit)
	for n := 0; service.Pause(offering, pause) == nil; n++ {
		select {
		case slots <- struct{}{}:
		case <-offering.Done():
			return
		}
		working.Go(func() {
			defer func() { <-slots }()
			work(n)
		})
	}
}

// awaitBacklog waits while too many emails are unsent.
func (l *Load) awaitBacklog(offering context.Context) error {
	for int64(l.Ledger.Expected()-l.params.Sent()) > l.backlog.Load() {
		if err := service.Pause(offering, backlogPause); err != nil {
			return err
		}
	}
	return nil
}
