package maintenance

import (
	"context"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// The kinds whose age no setting changes.
const (
	// feedbackKept is how long a notification of the provider is remembered: longer than the
	// api takes old ones, so that none does its work twice. What they told stays in the
	// timelines.
	feedbackKept = 30 * 24 * time.Hour
	// replaysKept is how long one can look up what came of a request about many of them.
	replaysKept = 30 * 24 * time.Hour
)

// KeyStore is what is asked of the database about idempotency keys.
type KeyStore interface {
	CleanIdempotencyKeys(ctx context.Context, limit int) (int, error)
}

// idempotencyKeys say themselves when their time is over.
func idempotencyKeys(store KeyStore) kind {
	return kind{"idempotency keys", keyExpired, always(limited(store.CleanIdempotencyKeys))}
}

// FeedbackStore is what is asked of the database about notifications.
type FeedbackStore interface {
	CleanFeedback(ctx context.Context, age time.Duration, limit int) (int, error)
}

func notifications(store FeedbackStore) kind {
	return kind{"notifications", noticeExpired, always(older(feedbackKept, store.CleanFeedback))}
}

// DeadLetterStore is what is asked of the database about dead letters.
type DeadLetterStore interface {
	CleanEmailLetters(ctx context.Context, limit int) (int, error)
	CleanBulkLetters(ctx context.Context, limit int) (int, error)
	CleanReplays(ctx context.Context, age time.Duration, limit int) (int, error)
}

// Archive is the queue's own view of what gave up.
type Archive interface {
	CleanArchive(ctx context.Context, queue string, age time.Duration) (int, error)
}

// deadLetters are kept as long as package store says: those of emails for a shorter time.
func deadLetters(store DeadLetterStore) kind {
	return kind{"dead letters", deadLetterExpired, always(limited(store.CleanEmailLetters), limited(store.CleanBulkLetters))}
}

func replays(store DeadLetterStore) kind {
	return kind{"dead letter replays", replayExpired, always(older(replaysKept, store.CleanReplays))}
}

// archivedTasks go with their dead letters. A queue takes away some at a time and does
// not say whether there are more.
func archivedTasks(archive Archive) kind {
	var batches []batch
	for _, queue := range email.Queues() {
		batches = append(batches, func(ctx context.Context) (store.Cleaned, error) {
			n, err := archive.CleanArchive(ctx, queue, store.EmailLettersKept)
			return store.Cleaned{Count: n, More: n > 0}, err
		})
	}
	return kind{"archived tasks", archiveExpired, always(batches...)}
}

// AuditStore is what is asked of the database about what operators did. It alone says how
// long that is kept.
type AuditStore interface {
	CleanAudit(ctx context.Context, limit int) (int, error)
}

// auditRows cannot be locked by who only deletes them: two dispatchers find the same, and
// share them. So some, not all of a batch, means that there may be more.
func auditRows(audit AuditStore) kind {
	return kind{"audit rows", auditExpired, always(func(ctx context.Context) (store.Cleaned, error) {
		n, err := audit.CleanAudit(ctx, cleanBatch)
		return store.Cleaned{Count: n, More: n > 0}, err
	})}
}
