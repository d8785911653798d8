package dispatch

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// ErasedTask is a task to remove from Redis, because its email names a person who was erased.
type ErasedTask struct {
	ID uuid.UUID `db:"outbox_id"`
	// Final: the email can never be sent again. Otherwise only an archived or completed task is removed.
	Final bool `db:"final"`
}

// openTasksSQL reads erased_tasks_open, finds emails by email_outbox_pkey, and locks nothing. A task that is not final is
// omitted while its email is open and has a task in Redis: Redis may still archive that task.
const openTasksSQL = `
SELECT t.outbox_id, t.final FROM erased_tasks t
WHERE t.done_at IS NULL AND (t.final OR NOT EXISTS (
    SELECT FROM email_outbox o WHERE o.id = t.outbox_id AND o.processed_at IS NULL AND (o.enqueued_at IS NOT NULL OR o.status = 'PROCESSING')))
ORDER BY t.outbox_id LIMIT $1`

// ErasedTasks lists tasks that can be removed now.
func (s *Store) ErasedTasks(ctx context.Context, limit int) ([]ErasedTask, error) {
	var found []ErasedTask
	if err := s.db.SelectContext(ctx, &found, openTasksSQL, limit); err != nil {
		return nil, fmt.Errorf("list tasks of erased emails: %w", pg.Translate(err))
	}
	return found, nil
}

// tasksRemovedSQL locks rows by primary key. If two dispatchers remove the same tasks, found is set if either of them found
// one.
const tasksRemovedSQL = `
UPDATE erased_tasks t SET done_at = now(), found = found OR t.outbox_id = ANY ($2::uuid[]) WHERE t.outbox_id = ANY ($1::uuid[])`

// TasksRemoved records that Redis has no task of these ids any more; found are the ids whose task was removed.
func (s *Store) TasksRemoved(ctx context.Context, ids, found []uuid.UUID) error {
	_, err := s.db.Exec(ctx, tasksRemovedSQL, pg.UUIDArray(ids), pg.UUIDArray(found))
	return pg.Wrap("record removed tasks", err)
}

// oldestErasureSQL reads all of person_erasures, which has only incomplete erasures, and locks nothing.
const oldestErasureSQL = `SELECT coalesce(extract(epoch FROM now() - min(begun_at)), 0)::float8 FROM person_erasures`

// OldestErasure returns the age of the oldest incomplete erasure in seconds, 0 if there is none.
func (s *Store) OldestErasure(ctx context.Context) (seconds float64, err error) {
	if err := s.db.GetContext(ctx, &seconds, oldestErasureSQL); err != nil {
		return 0, fmt.Errorf("look for the oldest erasure: %w", pg.Translate(err))
	}
	return seconds, nil
}
