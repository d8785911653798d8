package maintenance

import (
	"context"
	"log/slog"
	"time"

	"email-gateway/shared/service"
)

// feedbackKept is how long a notification of the provider is remembered: longer than
// the api takes old ones, so that none does its work twice.
const feedbackKept = 30 * 24 * time.Hour

// FeedbackStore is what the cleaner asks of the database.
type FeedbackStore interface {
	CleanFeedback(ctx context.Context, age time.Duration, limit int) (int, error)
}

// FeedbackCleaner deletes the provider's notifications past their time. What they told
// stays in the timelines.
type FeedbackCleaner struct {
	*service.Loop
	log     *slog.Logger
	store   FeedbackStore
	actions *Actions
}

// NewFeedbackCleaner makes a cleaner that is not running yet.
func NewFeedbackCleaner(log *slog.Logger, store FeedbackStore, actions *Actions) *FeedbackCleaner {
	c := &FeedbackCleaner{log: log, store: store, actions: actions}
	c.Loop = service.NewLoop(service.LoopParams{
		Log: log, Interval: cleanInterval, RunOnce: c.runOnce, ErrorDelay: time.Minute,
	})
	return c
}

func (c *FeedbackCleaner) runOnce(ctx context.Context) (more bool, err error) {
	n, err := c.store.CleanFeedback(ctx, feedbackKept, cleanBatch)
	c.actions.Count(noticeExpired, n)
	if n > 0 {
		c.log.Debug("notifications deleted", "count", n)
	}
	return n == cleanBatch, err
}
