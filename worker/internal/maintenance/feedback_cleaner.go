package maintenance

import (
	"context"
	"time"
)

// feedbackKept is how long a notification of the provider is remembered: longer than the
// api takes old ones, so that none does its work twice. What they told stays in the
// timelines.
const feedbackKept = 30 * 24 * time.Hour

// FeedbackStore is what is asked of the database about notifications.
type FeedbackStore interface {
	CleanFeedback(ctx context.Context, age time.Duration, limit int) (int, error)
}

func notifications(store FeedbackStore) kind {
	return kind{"notifications", noticeExpired, always(older(feedbackKept, store.CleanFeedback))}
}
