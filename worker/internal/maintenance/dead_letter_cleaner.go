package maintenance

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
)

// deadLettersKept is how long what gave up is kept for somebody to look at it.
const deadLettersKept = 7 * 24 * time.Hour

// replaysKept is how long one can look up what came of a request about many of them.
const replaysKept = 30 * 24 * time.Hour

// DeadLetterStore is what the cleaner asks of the database.
type DeadLetterStore interface {
	CleanDeadLetters(ctx context.Context, age time.Duration, limit int) (int, error)
	CleanReplays(ctx context.Context, age time.Duration, limit int) (int, error)
}

// Archive is the queue's own view of what gave up.
type Archive interface {
	CleanArchive(ctx context.Context, queue string, age time.Duration) (int, error)
}

// DeadLetterCleaner deletes dead letters past their time, the tasks that the queue kept
// of them, and what was asked for about many of them.
type DeadLetterCleaner struct {
	*service.Loop
	log     *slog.Logger
	store   DeadLetterStore
	archive Archive
	actions *Actions
}

// NewDeadLetterCleaner makes a cleaner that is not running yet.
func NewDeadLetterCleaner(log *slog.Logger, store DeadLetterStore, archive Archive, actions *Actions) *DeadLetterCleaner {
	c := &DeadLetterCleaner{log: log, store: store, archive: archive, actions: actions}
	c.Loop = service.NewLoop(service.LoopParams{
		Log: log, Interval: cleanInterval, RunOnce: c.runOnce, ErrorDelay: time.Minute,
	})
	return c
}

func (c *DeadLetterCleaner) runOnce(ctx context.Context) (more bool, err error) {
	rows, err := c.store.CleanDeadLetters(ctx, deadLettersKept, cleanBatch)
	replays, failed := c.store.CleanReplays(ctx, replaysKept, cleanBatch)
	more, err = rows == cleanBatch || replays == cleanBatch, errors.Join(err, failed)
	tasks := 0
	for _, queue := range email.Queues() {
		n, failed := c.archive.CleanArchive(ctx, queue, deadLettersKept)
		tasks += n
		more = more || n > 0
		err = errors.Join(err, failed)
	}
	c.actions.Count(deadLetterExpired, rows)
	c.actions.Count(replayExpired, replays)
	c.actions.Count(archiveExpired, tasks)
	if rows+tasks > 0 {
		c.log.Info("dead letters deleted", "rows", rows, "tasks", tasks)
	}
	return more && err == nil, err
}
