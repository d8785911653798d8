package health

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// Concurrent callers share one call; the next caller starts another.
func TestShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		answer := make(chan struct{})
		ask := shared(func(context.Context) (int64, error) {
			<-answer
			return asked.Add(1), nil
		})
		for round := int64(1); round <= 2; round++ {
			var asking sync.WaitGroup
			for range 64 {
				asking.Go(func() {
					if got, err := ask(t.Context()); got != round || err != nil {
						t.Errorf("%d, %v, want %d", got, err, round)
					}
				})
			}
			synctest.Wait()
			answer <- struct{}{}
			asking.Wait()
		}
	})
}
