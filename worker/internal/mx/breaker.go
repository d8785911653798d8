package mx

import (
	"sync"
	"time"
)

const (
	// breakAfter so many failures in a row it is DNS that is ill, and not a domain: a file
	// of a million lines must not wait 2 s for each of its domains.
	breakAfter = inFlight
	// breakFor is how long DNS is then left alone.
	breakFor = 30 * time.Second
)

// breaker counts failures in a row.
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

// tell counts an answer. After a break the first failure begins the next one.
func (b *breaker) tell(answered bool, now time.Time) {
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
