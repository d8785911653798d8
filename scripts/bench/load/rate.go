package load

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// MeasureRate processes n pieces of work with that number of goroutines, and returns the rate per second.
// The measurement runs from the end of the first eighth, when all connections are open, to the
// beginning of the last tenth, when no goroutine is idle yet; the gateway's programs are measured
// in the same way.
func MeasureRate(goroutines, n int, do func(piece int64) error) (rate float64, err error) {
	first, last := int64(n-n/8), int64(n/10) // pieces are counted down
	var (
		left         atomic.Int64
		start, ended time.Time // each written by one goroutine
		working      sync.WaitGroup
	)
	left.Store(int64(n))
	errs := make([]error, goroutines)
	for i := range goroutines {
		working.Go(func() {
			for piece := left.Add(-1); piece >= 0 && errs[i] == nil; piece = left.Add(-1) {
				switch piece {
				case first - 1:
					start = time.Now()
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
	return float64(first-1-last) / ended.Sub(start).Seconds(), nil
}
