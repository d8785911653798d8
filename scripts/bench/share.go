package bench

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// share has so many goroutines do n pieces of work, each the next one that nobody has
// begun, and returns how many a second they did. The clock starts when an eighth has been
// begun, as it does for the gateway's programs: connections stand by then.
func share(goroutines, n int, do func(piece int64) error) (rate float64, err error) {
	rest := int64(n - n/8)
	var (
		left    atomic.Int64
		begun   time.Time // written by whoever begins the first piece of the rest
		working sync.WaitGroup
	)
	left.Store(int64(n))
	errs := make([]error, goroutines)
	for i := range goroutines {
		working.Go(func() {
			for piece := left.Add(-1); piece >= 0 && errs[i] == nil; piece = left.Add(-1) {
				if piece == rest-1 {
					begun = time.Now()
				}
				errs[i] = do(piece)
			}
		})
	}
	working.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	return float64(rest) / time.Since(begun).Seconds(), nil
}
