// Package dbcheck pauses the consumers of a worker that cannot use Postgres. Such a worker would take tasks, fail each of
// them within milliseconds and delay it on its queue, although other workers could process it. The worker's main package
// makes one Check: the parts that run statements report failures to it, and the consumers ask it before they take tasks.
package dbcheck

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
)

const (
	// firstPause and maxPause are the pauses between two confirmations that fail: the first, and the maximum after
	// several. Tasks wait up to maxPause longer than the outage.
	firstPause, maxPause = 250 * time.Millisecond, 2 * time.Second
	// confirmTime bounds one confirmation.
	confirmTime = 2 * time.Second
)

// Check records whether statements of this worker have failed since Postgres last confirmed a commit. It is safe for
// concurrent use.
type Check struct {
	log     *slog.Logger
	confirm func(ctx context.Context) error
	turn    chan struct{} // one caller at a time asks Postgres

	mu       sync.Mutex
	suspect  bool
	failures int       // failed confirmations since then
	last     error     // of the latest one
	next     time.Time // when Postgres is asked again
}

// New makes a Check. confirm returns nil if Postgres commits.
func New(log *slog.Logger, confirm func(ctx context.Context) error) *Check {
	return &Check{log: log, confirm: confirm, turn: make(chan struct{}, 1)}
}

// Failed reports that a statement failed, or that its answer is late. Whether Postgres is the cause need not be known: if
// it is not, the next confirmation succeeds.
func (c *Check) Failed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.suspect {
		c.suspect, c.failures, c.next = true, 0, time.Time{}
	}
}

// Suspect reports whether a statement has failed since Postgres last confirmed a commit.
func (c *Check) Suspect() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.suspect
}

// Ask returns nil if Postgres can be used. If a statement has failed, it asks Postgres, or returns the last answer if that
// is recent.
func (c *Check) Ask(ctx context.Context) error {
	if !c.Suspect() {
		return nil
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.mu.Lock()
	suspect, last, next := c.suspect, c.last, c.next
	c.mu.Unlock()
	switch {
	case !suspect:
		return nil
	case time.Now().Before(next):
		return last
	}
	confirming, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	err := c.confirm(confirming)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.record(err)
	return err
}

// Await returns when Postgres can be used, or with an error when ctx ends.
func (c *Check) Await(ctx context.Context) error {
	for {
		if err := c.Ask(ctx); err == nil || ctx.Err() != nil {
			return err
		}
		c.mu.Lock()
		wait := time.Until(c.next)
		c.mu.Unlock()
		if err := service.Pause(ctx, wait); err != nil {
			return err
		}
	}
}

// record stores the result of a confirmation, and logs the beginning and the end of an outage.
func (c *Check) record(err error) {
	c.mu.Lock()
	before := c.failures
	if err == nil {
		c.suspect, c.failures = false, 0
	} else {
		c.failures++
		c.next = time.Now().Add(min(firstPause<<min(before, 10), maxPause))
	}
	c.last = err
	c.mu.Unlock()
	switch {
	case err != nil && before == 0:
		c.log.Error("cannot use Postgres: no tasks are taken until it answers", "error", email.MaskText(err.Error()))
	case err == nil && before > 0:
		c.log.Info("Postgres answers again, tasks are taken")
	}
}
