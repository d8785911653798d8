package mailing

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/outbox"
)

// These statements update the row that lockForControlSQL has locked. A held or paused mailing has no
// current job: the next one is written when the mailing starts. A mailing that waits for its job gets
// a new generation, so that a job for the old time has no effect.
const (
	movePausedSQL = `UPDATE mailings SET send_at = $2, updated_at = now() WHERE id = $1 RETURNING ` + mailingColumns

	moveWaitingSQL = `
UPDATE mailings SET send_at = greatest(now(), $2), status = 'QUEUED', generation = generation + 1, attempts = 0, last_attempt = NULL, error_message = NULL,
    waiting_for = NULL, waiting_until = NULL, updated_at = now()
WHERE id = $1 RETURNING ` + mailingColumns
)

// moveJobSQL finds the mailing's job along email_outbox_lane_claim, in the company's lane of
// jobs, and locks it. It skips a job that the dispatcher may be publishing (enqueued_at) or has
// locked: with its old generation, that job has no effect.
const moveJobSQL = `
UPDATE email_outbox SET next_at = greatest(now(), $2), due_at = NULL, payload = jsonb_set(payload, '{generation}', to_jsonb($3::integer))
WHERE company_id = $4 AND id = (
    SELECT o.id FROM dispatch_lanes l JOIN email_outbox o ON o.lane_id = l.id AND (o.company_id = l.company_id) IS TRUE
    WHERE l.company_id = $4 AND l.queue = $5 AND l.mailing_id IS NULL
      AND o.status = 'PENDING' AND o.enqueued_at IS NULL AND o.payload ->> 'mailingId' = $1::text
    LIMIT 1 FOR UPDATE OF o SKIP LOCKED)`

// MoveMailing changes the start time of a mailing; the zero time is now. A paused mailing stays
// paused. It returns *StateError if the expansion of the mailing has begun.
func (s *Store) MoveMailing(ctx context.Context, company, id uuid.UUID, at time.Time) (Mailing, error) {
	sendAt := sql.NullTime{Time: at, Valid: !at.IsZero()}
	return s.control(ctx, "move mailing", company, id, func(tx *sqlx.Tx, m *Mailing) error {
		begun := m.Processed > 0 || m.ExpandedAt != nil
		switch {
		case m.Status == Paused && !begun:
			return pg.Translate(tx.GetContext(ctx, m, movePausedSQL, m.ID, sendAt))
		case (m.Status == Queued || m.Status == Pending) && !begun:
			if err := tx.GetContext(ctx, m, moveWaitingSQL, m.ID, sendAt); err != nil {
				return pg.Translate(err)
			}
			return moveJob(ctx, tx, m, sendAt)
		default:
			return &StateError{Status: m.Status, Reason: "only a mailing that has not started can be rescheduled"}
		}
	})
}

// moveJob moves the job that waits in the outbox, or writes one if there is none.
func moveJob(ctx context.Context, tx *sqlx.Tx, m *Mailing, sendAt sql.NullTime) error {
	result, err := tx.ExecContext(ctx, moveJobSQL, m.ID, sendAt, m.Generation, m.CompanyID, email.QueueMailings)
	if err != nil {
		return fmt.Errorf("move mailing job: %w", pg.Translate(err))
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return outbox.InsertMailingJob(ctx, tx, outbox.MailingJob{
		MailingID: m.ID, CompanyID: m.CompanyID, RequestID: m.RequestID, StorageURL: m.StorageURL, Generation: m.Generation, SendAt: sendAt.Time,
	})
}
