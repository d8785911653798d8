package mailing

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
)

// mailingCompanySQL reads one row by primary key.
const mailingCompanySQL = `SELECT company_id FROM mailings WHERE id = $1`

// CancelMailingAs is CancelMailing for an operator, who names no company. It returns pg.ErrNotFound if there is no such mailing.
func (s *Store) CancelMailingAs(ctx context.Context, by audit.Operator, id uuid.UUID) (cancelled Mailing, err error) {
	_, err = audit.Apply(ctx, s.db, by, audit.Change{Action: "mailing.cancel", Subject: id.String()}, func(tx *sqlx.Tx, a *audit.Change) error {
		if err := tx.GetContext(ctx, &a.Company, mailingCompanySQL, id); err != nil {
			return pg.Translate(err)
		}
		cancelled, err = controlIn(ctx, tx, a.Company, id, cancel(ctx))
		return err
	})
	return cancelled, pg.Wrap("cancel mailing", err)
}

// StalledMailing is a mailing that has not ended and waits for a decision.
type StalledMailing struct {
	ID      uuid.UUID `db:"id"`
	Company string    `db:"company"`
	Since   time.Time `db:"since"`
}

// stalledMailingsSQL scans mailings_open, which contains the mailings in progress, and mailings_failed, reads companies by
// primary key, and locks nothing. The dispatcher cancels mailings that were never started (cancelUnstartedSQL), and failed ones
// without an open dead letter (cancelDiscardedSQL).
const stalledMailingsSQL = `
SELECT s.id, c.name AS company, s.since FROM (
    SELECT m.id, m.company_id, greatest(m.updated_at, CASE WHEN m.status <> 'PAUSED' THEN least(c.suspended_at, c.mailings_paused_at) END) AS since
    FROM mailings m JOIN companies c ON c.id = m.company_id
    WHERE m.status IN ('QUEUED', 'PENDING', 'PROCESSING', 'SENDING', 'PAUSED')
      AND (m.status = 'PAUSED' AND m.generation > 0 AND m.updated_at < now() - $1 * interval '1 ms'
        OR m.status <> 'PAUSED' AND least(c.suspended_at, c.mailings_paused_at) < now() - $1 * interval '1 ms')
    UNION ALL
    SELECT id, company_id, updated_at FROM mailings
    WHERE status = 'FAILED' AND entries_deleted_at IS NULL AND updated_at < now() - $1 * interval '1 ms'
) s JOIN companies c ON c.id = s.company_id
ORDER BY s.since LIMIT $2`

// StalledMailings lists mailings that were started, and that nothing has continued for longer than age because they have failed
// or are paused, or their company is suspended or its mailings are paused. Nothing expires before a mailing ends: neither its
// emails nor its data.
func (s *Store) StalledMailings(ctx context.Context, age time.Duration, limit int) ([]StalledMailing, error) {
	var stalled []StalledMailing
	err := s.db.SelectContext(ctx, &stalled, stalledMailingsSQL, age.Milliseconds(), limit)
	return stalled, pg.Wrap("list stalled mailings", pg.Translate(err))
}
