package webhook

import (
	"context"
	"time"
)

// SetTurns sets how many endpoints are served at the same time, and how long each while others may wait.
func (s *Service) SetTurns(most int, each time.Duration) { s.most, s.turnTime = most, each }

// Pace returns how long requests with the given interval wait, one after the other. stopped says which of them belong to
// a batch that was stopped.
func Pace(ctx context.Context, interval time.Duration, stopped ...bool) []time.Duration {
	w := newEndpointLimits(1, 1)
	w.interval = interval
	waits := make([]time.Duration, len(stopped))
	for i, s := range stopped {
		begun := time.Now()
		w.pace(ctx, func() bool { return s })
		waits[i] = time.Since(begun)
	}
	return waits
}
