package maintenance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"email-gateway/shared/service"
	"email-gateway/shared/store"
)

const (
	// cleanInterval may be long: what is kept for days may stay an hour longer.
	cleanInterval = time.Hour
	// cleanBatch keeps one deletion to some tens of milliseconds.
	cleanBatch = 1000
	// cleanRest is how many times as long as a batch took the cleaner rests after it: a
	// backlog of deletions takes a quarter of a connection's time, and leaves the tables'
	// vacuum the time to keep up.
	cleanRest    = 3
	maxCleanRest = time.Second
)

// batch deletes some of what is past its time.
type batch func(ctx context.Context) (store.Cleaned, error)

// limited is a batch of a method that says how many it deleted of at most cleanBatch.
func limited(clean func(ctx context.Context, limit int) (int, error)) batch {
	return func(ctx context.Context) (store.Cleaned, error) {
		n, err := clean(ctx, cleanBatch)
		return store.Cleaned{Count: n, More: n == cleanBatch}, err
	}
}

// older is limited for a method that takes an age.
func older(age time.Duration, clean func(ctx context.Context, age time.Duration, limit int) (int, error)) batch {
	return limited(func(ctx context.Context, limit int) (int, error) { return clean(ctx, age, limit) })
}

// aged is a batch of a method that says itself whether there is more.
func aged(age time.Duration, clean func(context.Context, time.Duration, int) (store.Cleaned, error)) batch {
	return func(ctx context.Context) (store.Cleaned, error) { return clean(ctx, age, cleanBatch) }
}

// kind of things that are deleted.
type kind struct {
	name    string // in the log
	action  string // in the metric
	batches func(ctx context.Context) ([]batch, error)
}

// always is for a kind whose batches are the same each round.
func always(batches ...batch) func(context.Context) ([]batch, error) {
	return func(context.Context) ([]batch, error) { return batches, nil }
}

// Cleaner deletes what is past its time of one kind, batch after batch. Any number may
// run at once: rows that one is at are left to it by the others.
type Cleaner struct {
	*service.Loop
	log     *slog.Logger
	actions *Actions
	kind    kind
}

// newCleaner makes a cleaner that is not running yet. Its batches are asked for anew each
// round.
func newCleaner(log *slog.Logger, actions *Actions, k kind) *Cleaner {
	c := &Cleaner{log: log, actions: actions, kind: k}
	c.Loop = service.NewLoop(service.LoopParams{
		Log: log, Interval: cleanInterval, RunOnce: c.runOnce, ErrorDelay: time.Minute,
	})
	return c
}

// runOnce goes on with each batch until there is no more. One that fails does not keep
// the others.
func (c *Cleaner) runOnce(ctx context.Context) (more bool, err error) {
	batches, err := c.kind.batches(ctx)
	total := 0
	for _, b := range batches {
		n, failed := c.drain(ctx, b)
		total += n
		err = errors.Join(err, failed)
	}
	if total > 0 {
		c.log.Info("past its time, deleted", "kind", c.kind.name, "count", total)
	}
	if err != nil {
		return false, fmt.Errorf("clean %s: %w", c.kind.name, err)
	}
	return false, nil
}

func (c *Cleaner) drain(ctx context.Context, b batch) (total int, err error) {
	for {
		begun := time.Now()
		done, err := b(ctx)
		c.actions.Count(c.kind.action, done.Count)
		total += done.Count
		if err != nil || !done.More {
			return total, err
		}
		if err := service.Pause(ctx, min(cleanRest*time.Since(begun), maxCleanRest)); err != nil {
			return total, err
		}
	}
}
