package maintenance

import (
	"context"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

const (
	// deadLettersKept is how long what gave up is kept for somebody to look at it.
	deadLettersKept = 7 * 24 * time.Hour
	// replaysKept is how long one can look up what came of a request about many of them.
	replaysKept = 30 * 24 * time.Hour
)

// DeadLetterStore is what is asked of the database about dead letters.
type DeadLetterStore interface {
	CleanDeadLetters(ctx context.Context, age time.Duration, limit int) (int, error)
	CleanReplays(ctx context.Context, age time.Duration, limit int) (int, error)
}

// Archive is the queue's own view of what gave up.
type Archive interface {
	CleanArchive(ctx context.Context, queue string, age time.Duration) (int, error)
}

func deadLetters(store DeadLetterStore) kind {
	return kind{"dead letters", deadLetterExpired, always(older(deadLettersKept, store.CleanDeadLetters))}
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
			n, err := archive.CleanArchive(ctx, queue, deadLettersKept)
			return store.Cleaned{Count: n, More: n > 0}, err
		})
	}
	return kind{"archived tasks", archiveExpired, always(batches...)}
}
