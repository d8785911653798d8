package maintenance

import (
	"context"
	"log/slog"
	"time"

	"email-gateway/shared/service"
)

// AuditStore is what the cleaner asks of the database, which alone says how long what
// operators did is kept.
type AuditStore interface {
	CleanAudit(ctx context.Context, limit int) (int, error)
}

// AuditCleaner deletes what operators did so long ago that it is not kept any more.
type AuditCleaner struct {
	*service.Loop
	log     *slog.Logger
	store   AuditStore
	actions *Actions
}

// NewAuditCleaner makes a cleaner that is not running yet.
func NewAuditCleaner(log *slog.Logger, store AuditStore, actions *Actions) *AuditCleaner {
	c := &AuditCleaner{log: log, store: store, actions: actions}
	c.Loop = service.NewLoop(service.LoopParams{
		Log: log, Interval: cleanInterval, RunOnce: c.runOnce, ErrorDelay: time.Minute,
	})
	return c
}

func (c *AuditCleaner) runOnce(ctx context.Context) (more bool, err error) {
	n, err := c.store.CleanAudit(ctx, cleanBatch)
	c.actions.Count(auditExpired, n)
	if n > 0 {
		c.log.Debug("audit rows deleted", "count", n)
	}
	return n == cleanBatch, err
}
