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

// backOff waits before the deliveries begin again that leave has ended. A main queue needs no wait but that for Postgres. It
// returns false if the connection ends or the consumer stops meanwhile.
func (c *Consumer) backOff(s *session) bool {
	if c.config.Database.Ask(c.stopping) != nil {
		return true // awaitDatabase waits
	}
	return !c.dlq || c.pause(s, c.lengthen())
}

// dlqBackoff is the wait of the consumer of a DLQ whose tasks failed. email.Backoff is that of emails.
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
