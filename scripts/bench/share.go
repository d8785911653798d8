package bench

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// share has so many goroutines do n pieces of work, each the next one that nobody has
// begun, and returns how many a second they did. The clock runs from the end of the first
// eighth, when connections stand, to the beginning of the last tenth, when none waits yet for
// the others; so it does for the gateway's programs.
func share(goroutines, n int, do func(piece int64) error) (rate float64, err error) {
	first, last := int64(n-n/8), int64(n/10) // pieces are counted down
	var (
		left         atomic.Int64
		begun, ended time.Time // each written by one goroutine
		working      sync.WaitGroup
	)
	left.Store(int64(n))
	errs := make([]error, goroutines)
	for i := range goroutines {
		working.Go(func() {
			for piece := left.Add(-1); piece >= 0 && errs[i] == nil; piece = left.Add(-1) {
				switch piece {
				case first - 1:
					begun = time.Now()
				case last:
					ended = time.Now()
				}
				errs[i] = do(piece)
			}
		})
	}
	working.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	return float64(first-1-last) / ended.Sub(begun).Seconds(), nil
}
