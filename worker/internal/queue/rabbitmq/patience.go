package rabbitmq

import (
	"sync"
	"time"
)

// Waits between the batches of a DLQ that fail.
const (
	firstPatience = time.Second
	lastPatience  = 60 * time.Second
)

// patience is how long a DLQ's consumer waits after a batch of which nothing succeeded.
type patience struct {
	mu   sync.Mutex
	last time.Duration
}

// lengthen returns the wait after one more failure.
func (p *patience) lengthen() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = min(max(2*p.last, firstPatience), lastPatience)
	return p.last
}

// reset is called when something succeeded.
func (p *patience) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = 0
}
