package mailing

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// The dispatcher cancels mailings that nothing continues any more. Both statements lock the mailings that they change and their
// lanes (by the unique index of dispatch_lanes), and leave locked mailings to the next round. The EntryActionLoop cancels the
// entries.
//
// cancelUnstartedSQL scans mailings_open, which contains the mailings in progress. cancelDiscardedSQL scans mailings_failed and
// looks up the dead letters of each by dead_letters_mailing. A mailing whose entries are deleted has nothing to cancel.
const (
	cancelUnstartedSQL = `
WITH due AS MATERIALIZED (
    SELECT id, 'it was never started' AS error_message FROM mailings
    WHERE status = 'PAUSED' AND generation = 0 AND greatest(updated_at, send_at) < now() - $2 * interval '1 ms'
    ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
), ` + cancelDueSQL
	cancelDiscardedSQL = `
WITH due AS MATERIALIZED (
    SELECT id, error_message FROM mailings m
    WHERE status = 'FAILED' AND entries_deleted_at IS NULL
      AND NOT EXISTS (SELECT FROM dead_letters d WHERE d.mailing_id = m.id AND d.target = 'mailing.process' AND d.resolved_at IS NULL)
    ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
), ` + cancelDueSQL

	cancelDueSQL = `cancelled AS (
    UPDATE mailings m SET status = 'CANCELLED', settling = 'cancel', settled_to = NULL, last_attempt = NULL, counted_at = NULL,
        error_message = due.error_message, updated_at = now()
    FROM due WHERE m.id = due.id RETURNING m.id, m.company_id
), closed AS (
    UPDATE dispatch_lanes l SET paused_at = coalesce(l.paused_at, now())
    FROM cancelled c WHERE l.company_id = c.company_id AND l.queue = 'email:send:low' AND l.mailing_id = c.id
)
SELECT id FROM cancelled`
)

// CancelUnstarted cancels at most limit mailings that were uploaded as held and were never started. The age counts from
// the upload, the last change or the start time, whichever is latest. Their files can be deleted at once: see
// retention.Store.DueFiles.
func (s *Store) CancelUnstarted(ctx context.Context, age time.Duration, limit int) (int, error) {
	n, err := s.cancelDue(ctx, cancelUnstartedSQL, limit, age.Milliseconds())
	if err != nil {
		return 0, fmt.Errorf("cancel mailings that were never started: %w", err)
	}
	return n, nil
}

// CancelDiscarded cancels at most limit FAILED mailings whose dead letter was discarded, or deleted at the end of its retention.
// Until then they can be retried.
func (s *Store) CancelDiscarded(ctx context.Context, limit int) (int, error) {
	n, err := s.cancelDue(ctx, cancelDiscardedSQL, limit)
	if err != nil {
		return 0, fmt.Errorf("cancel failed mailings without a dead letter: %w", err)
	}
	return n, nil
}

func (s *Store) cancelDue(ctx context.Context, statement string, args ...any) (int, error) {
	var cancelled []uuid.UUID
	err := pg.Write(func(args []any) error {
		cancelled = nil
		return s.db.SelectContext(ctx, &cancelled, statement, args...)
	}, args...)
	return len(cancelled), err
}
