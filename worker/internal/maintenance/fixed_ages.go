package maintenance

import (
	"context"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/retention"
)

// Retention times that are not configurable.
const (
	// feedbackKept is how long a provider notification is kept to detect duplicates. It is longer than the age up to which the
	// api accepts notifications. Their effects stay in the timelines.
	feedbackKept = 30 * 24 * time.Hour
	// replaysKept is how long the result of a bulk request for dead letters can be looked up.
	replaysKept = 30 * 24 * time.Hour
	// feedKept is the age of the oldest events that GET /v1/events and webhooks can return.
	feedKept = 30 * 24 * time.Hour
	// webhooksKept is how long completed deliveries and replays of webhook endpoints can be looked up.
	webhooksKept = 30 * 24 * time.Hour
)

// KeyStore has the database operations for idempotency keys.
type KeyStore interface {
	CleanIdempotencyKeys(ctx context.Context, limit int) (int, error)
}

// idempotencyKeys deletes keys whose own expiry has passed.
func idempotencyKeys(store KeyStore) kind {
	return kind{"idempotency keys", keyExpired, always(limited(store.CleanIdempotencyKeys))}
}

// FeedbackStore has the database operations for provider notifications.
type FeedbackStore interface {
	CleanFeedback(ctx context.Context, age time.Duration, limit int) (int, error)
}

func notifications(store FeedbackStore) kind {
	return kind{"notifications", noticeExpired, always(older(feedbackKept, store.CleanFeedback))}
}

// DeadLetterStore has the database operations for dead letters.
type DeadLetterStore interface {
	CleanEmailLetters(ctx context.Context, limit int) (int, error)
	CleanBulkLetters(ctx context.Context, limit int) (int, error)
	CleanReplays(ctx context.Context, age time.Duration, limit int) (int, error)
}

// Archive is the queue's archived tasks.
type Archive interface {
	CleanArchive(ctx context.Context, queue string, age time.Duration) (int, error)
	TrimArchive(ctx context.Context, queue string, keep int) (int, error)
}

// deadLetters deletes dead letters. Package store/deadletter defines their retention, which is shorter for emails than for bulk
// jobs.
func deadLetters(store DeadLetterStore) kind {
	return kind{"dead letters", deadLetterExpired, always(limited(store.CleanEmailLetters), limited(store.CleanBulkLetters))}
}

func replays(store DeadLetterStore) kind {
	return kind{"dead letter replays", replayExpired, always(older(replaysKept, store.CleanReplays))}
}

// WebhookStore has the database operations for webhooks.
type WebhookStore interface {
	CleanDeliveries(ctx context.Context, age time.Duration, limit int) (int, error)
	CleanReplays(ctx context.Context, age time.Duration, limit int) (int, error)
}

func webhooks(store WebhookStore) kind {
	return kind{"webhook deliveries", webhookExpired, always(older(webhooksKept, store.CleanDeliveries), older(webhooksKept, store.CleanReplays))}
}

// archivedTasks deletes archived tasks at the age at which the dead letters of emails are deleted. Each call deletes some tasks
// and does not report whether there are more.
func archivedTasks(archive Archive) kind {
	var batches []batch
	for _, queue := range email.Queues() {
		batches = append(batches, func(ctx context.Context) (retention.Cleaned, error) {
			n, err := archive.CleanArchive(ctx, queue, deadletter.EmailLettersKept)
			return retention.Cleaned{Count: n, More: n > 0}, err
		})
	}
	return kind{"archived tasks", archiveExpired, always(batches...)}
}

const (
	// archiveKept is how many archived tasks each queue keeps. Operators see recent failures in asynqmon, and Postgres has all
	// dead letters. The payload of a task has up to 20 KB: 500 tasks in each of three queues are 30 MB, the 9,999 that asynq
	// keeps would be 600 MB, and Redis refuses the tasks of all tenants when its memory is full.
	archiveKept = 500
	// trimInterval limits the growth between two deletions: to 5,000 tasks at 500 failures per second.
	trimInterval = 10 * time.Second
)

// archiveSize deletes archived tasks beyond archiveKept, oldest first.
func archiveSize(archive Archive) kind {
	var batches []batch
	for _, queue := range email.Queues() {
		batches = append(batches, func(ctx context.Context) (retention.Cleaned, error) {
			n, err := archive.TrimArchive(ctx, queue, archiveKept)
			return retention.Cleaned{Count: n, More: n > 0}, err
		})
	}
	return kind{"size of the archive", archiveTrimmed, always(batches...)}
}

// EventFeedStore has the database operations for the feed of events.
type EventFeedStore interface {
	Purge(ctx context.Context, age time.Duration, limit int) (int, error)
}

// eventFeed deletes positions of the feed; the events stay in the timelines.
func eventFeed(feed EventFeedStore) kind {
	return kind{"event feed", feedExpired, always(older(feedKept, feed.Purge))}
}

// AuditStore has the database operations for audit rows. It defines their retention.
type AuditStore interface {
	CleanAudit(ctx context.Context, limit int) (int, error)
}

// auditRows repeats until nothing is deleted. A role that may only delete the rows cannot lock them, so two dispatchers find
// the same rows, each deletes a part of them, and a batch that is not full does not mean that no rows are left.
func auditRows(audit AuditStore) kind {
	return kind{"audit rows", auditExpired, always(func(ctx context.Context) (retention.Cleaned, error) {
		n, err := audit.CleanAudit(ctx, cleanBatch)
		return retention.Cleaned{Count: n, More: n > 0}, err
	})}
}
