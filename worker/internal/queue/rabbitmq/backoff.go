package rabbitmq

import (
	"sync"
	"time"
)

// Waits between failing batches of a DLQ.
const (
	firstBackoff = time.Second
	lastBackoff  = 60 * time.Second
)

// dlqBackoff is the wait of the consumer of a DLQ after a batch without any success.
type dlqBackoff struct {
	mu   sync.Mutex
	last time.Duration
}

// lengthen returns the wait after one more failure.
func (p *dlqBackoff) lengthen() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = min(max(2*p.last, firstBackoff), lastBackoff)
	return p.last
}

// reset is called after a success.
func (p *dlqBackoff) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = 0
}
