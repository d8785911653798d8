package maintenance

import (
	"context"
	"log/slog"
	"time"

	"email-gateway/shared/service"
)

const (
	// cleanInterval may be long: an expired key is invisible to everybody already.
	cleanInterval = time.Hour
	// cleanBatch keeps one deletion to some tens of milliseconds.
	cleanBatch = 1000
)

// KeyStore is what the cleaner asks of the database.
type KeyStore interface {
	CleanIdempotencyKeys(ctx context.Context, limit int) (int, error)
}

// IdempotencyCleaner deletes idempotency keys past their time.
type IdempotencyCleaner struct {
	*service.Loop
	log     *slog.Logger
	store   KeyStore
	actions *Actions
}

// NewIdempotencyCleaner makes a cleaner that is not running yet.
func NewIdempotencyCleaner(log *slog.Logger, store KeyStore, actions *Actions) *IdempotencyCleaner {
	c := &IdempotencyCleaner{log: log, store: store, actions: actions}
	c.Loop = service.NewLoop(service.LoopParams{
		Log: log, Interval: cleanInterval, RunOnce: c.runOnce, ErrorDelay: time.Minute,
	})
	return c
}

func (c *IdempotencyCleaner) runOnce(ctx context.Context) (more bool, err error) {
	n, err := c.store.CleanIdempotencyKeys(ctx, cleanBatch)
	c.actions.Count(keyExpired, n)
	if n > 0 {
		c.log.Debug("idempotency keys deleted", "count", n)
	}
	return n == cleanBatch, err
}
