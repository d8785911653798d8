package feedback

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"email-gateway/shared/email"
)

// errNotAsked is the result of a call before the first response of the queue.
var errNotAsked = errors.New("the queue has not been polled yet")

// calls are the calls of one kind to the queue, which may run at the same time.
type calls struct {
	log  *slog.Logger
	name string        // of the call, for the log
	keep time.Duration // for how long an error counts without another call; 0 = always

	mu         sync.Mutex
	last       error
	failedAt   time.Time
	answeredAt time.Time // the last answer without an error
}

// ended stores the result of a call that began at start, and logs the beginning and the end of an outage. The error of
// a call that began before the last answer is ignored: such a call may hang for a while after an outage has ended.
func (c *calls) ended(start time.Time, err error) {
	c.mu.Lock()
	if err == nil {
		c.answeredAt = time.Now()
	} else if start.Before(c.answeredAt) {
		c.mu.Unlock()
		return
	}
	before := c.last
	c.last, c.failedAt = err, time.Now()
	c.mu.Unlock()
	switch {
	case err != nil && (before == nil || errors.Is(before, errNotAsked)):
		c.log.Error("the queue of SES events refuses a call, or does not answer", "call", c.name, "error", email.MaskText(err.Error()))
	case err == nil && before != nil && !errors.Is(before, errNotAsked):
		c.log.Info("the queue of SES events answers again", "call", c.name)
	}
}

// err returns the error of the last call.
func (c *calls) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keep > 0 && time.Since(c.failedAt) > c.keep {
		return nil
	}
	return c.last
}
