package mx

import (
	"sync"
	"time"
)

const (
	// breakAfter is the number of consecutive failures after which DNS, not the domains, is
	// considered broken: a file of a million lines must not wait 2 s per domain.
	breakAfter = inFlight
	// breakFor is how long no lookups are made then.
	breakFor = 30 * time.Second
)

// breaker counts consecutive failures.
type breaker struct {
	mu       sync.Mutex
	failures int
	until    time.Time
}

func (b *breaker) open(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return now.Before(b.until)
}

// record counts a result. After a break the first failure starts the next one.
func (b *breaker) record(answered bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if answered {
		b.failures = 0
		return
	}
	if b.failures++; b.failures >= breakAfter {
		b.until = now.Add(breakFor)
	}
}
