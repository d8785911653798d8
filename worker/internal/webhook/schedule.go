package webhook

import (
	"time"

	"email-gateway/shared/email"
)

// jitter is the maximum fraction by which a wait is extended. A wait is never shortened, because the schedule is how
// long an endpoint may be down without losing a delivery.
const jitter = 0.1

// schedule computes the waits of deliveries.
type schedule struct {
	waits email.Backoff
	// random returns a number in [0, 1).
	random func() float64
}

// attempts returns the number of attempts of a delivery.
func (s schedule) attempts() int { return len(s.waits) + 1 }

// after returns the wait after the n-th attempt, where 1 is the first. last means that no further attempt follows.
func (s schedule) after(n int) (wait time.Duration, last bool) {
	if n >= s.attempts() {
		return 0, true
	}
	return s.jittered(s.waits[max(n, 1)-1]), false
}

func (s schedule) jittered(d time.Duration) time.Duration {
	return d + time.Duration(s.random()*jitter*float64(d))
}
