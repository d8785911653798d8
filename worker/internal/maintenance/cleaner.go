package maintenance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"email-gateway/shared/service"
	"email-gateway/shared/store/retention"
)

const (
	// cleanInterval may be long: data with a retention of days may be kept for an hour longer.
	cleanInterval = time.Hour
	// discardedInterval is how long after its dead letter was discarded a failed mailing is cancelled at the latest.
	discardedInterval = 10 * time.Second
	// cleanBatch limits a deletion to some tens of milliseconds.
	cleanBatch = 1000
	// cleanRest is the pause after a batch, as a multiple of the batch's duration: a backlog of deletions takes a
	// quarter of one connection's time, and vacuum keeps up. maxCleanRest limits the pause, so batches that take longer
	// than 10 s use a larger part.
	cleanRest    = 3
	maxCleanRest = 30 * time.Second
)

// batch deletes some expired data.
type batch func(ctx context.Context) (retention.Cleaned, error)

// limited makes a batch from a method that deletes at most limit rows and returns their number. If it
// deletes cleanBatch rows, there may be more.
func limited(clean func(ctx context.Context, limit int) (int, error)) batch {
	return func(ctx context.Context) (retention.Cleaned, error) {
		n, err := clean(ctx, cleanBatch)
		return retention.Cleaned{Count: n, More: n == cleanBatch}, err
	}
}

// older is limited for a method that deletes rows older than age.
func older(age time.Duration, clean func(ctx context.Context, age time.Duration, limit int) (int, error)) batch {
	return limited(func(ctx context.Context, limit int) (int, error) { return clean(ctx, age, limit) })
}

// aged makes a batch from a method that deletes data older than age and reports itself whether there is more.
func aged(age time.Duration, clean func(context.Context, time.Duration, int) (retention.Cleaned, error)) batch {
	return func(ctx context.Context) (retention.Cleaned, error) { return clean(ctx, age, cleanBatch) }
}

// kind is a kind of data with a retention.
type kind struct {
	name    string // in the log
	action  string // in the metric
	batches func(ctx context.Context) ([]batch, error)
}

// always returns the same batches each round.
func always(batches ...batch) func(context.Context) ([]batch, error) {
	return func(context.Context) ([]batch, error) { return batches, nil }
}

// Cleaner deletes expired data of one kind in batches. Any number may run at once: each skips the
// rows that another one has locked.
type Cleaner struct {
	*service.Loop
	log     *slog.Logger
	actions *Actions
	kind    kind
	failing *failing
	check   func(ctx context.Context) error // before each batch; nil = none
}

// newCleaner makes a cleaner that is not running yet. It calls k.batches in each round.
func newCleaner(log *slog.Logger, actions *Actions, interval time.Duration, k kind, check func(ctx context.Context) error) *Cleaner {
	c := &Cleaner{log: log, actions: actions, kind: k, failing: newFailing(actions.registry, k.name), check: check}
	c.Loop = service.NewLoop(service.LoopParams{
		Log: log, Interval: interval, ErrorDelay: time.Minute,
		RunOnce: func(ctx context.Context) (bool, error) { return c.failing.round(ctx, c.runOnce) },
	})
	return c
}

// runOnce runs each batch until nothing is left. An error of one does not stop the others.
func (c *Cleaner) runOnce(ctx context.Context) (more bool, err error) {
	batches, err := c.kind.batches(ctx)
	total := 0
	for _, b := range batches {
		n, failed := c.drain(ctx, b)
		total += n
		err = errors.Join(err, failed)
	}
	if total > 0 {
		c.log.Info("expired data deleted", "kind", c.kind.name, "count", total)
	}
	if err != nil {
		return false, fmt.Errorf("clean %s: %w", c.kind.name, err)
	}
	return false, nil
}

func (c *Cleaner) drain(ctx context.Context, b batch) (total int, err error) {
	for {
		start := time.Now()
		if c.check != nil {
			if err := c.check(ctx); err != nil {
				return total, err
			}
		}
		done, err := b(ctx)
		c.actions.Count(c.kind.action, done.Count)
		total += done.Count
		if err != nil || !done.More {
			return total, err
		}
		if err := service.Pause(ctx, min(cleanRest*time.Since(start), maxCleanRest)); err != nil {
			return total, err
		}
	}
}
