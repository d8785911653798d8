package reputation

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/event"
	"email-gateway/shared/store/internal/pg"
)

const (
	// pausedAtSQL reads the company by primary key.
	pausedAtSQL = `SELECT mailings_paused_at FROM companies WHERE id = $1`

	// restartSQL locks the company's row by primary key, as a check does before it locks that in companies.
	restartSQL = `
UPDATE company_reputation SET counts_from = now(), feed_position = NULL, check_at = NULL, warnings = '{}', pause = NULL
WHERE company_id = $1`

	// resumeSQL locks the company's row by primary key.
	resumeSQL = `UPDATE companies SET mailings_paused_at = NULL WHERE id = $1 AND mailings_paused_at IS NOT NULL`

	// dropSendsSQL deletes along the primary key.
	dropSendsSQL = `DELETE FROM reputation_sends WHERE company_id = $1`
)

// Resume resumes the company's mailings, for the operator's reason. After that only emails sent since
// the call count. resumed is false if the mailings are not paused. The error is pg.ErrNotFound if there
// is no such company.
func (s *Store) Resume(ctx context.Context, by audit.Operator, company uuid.UUID) (resumed bool, err error) {
	resumed, err = audit.Apply(ctx, s.db, by, audit.Change{Action: "company.resume-mailings", Company: company}, func(tx *sqlx.Tx, a *audit.Change) error {
		if _, err := tx.ExecContext(ctx, pg.BoundWaitSQL, pg.LockTimeout(pg.LockWait)); err != nil {
			return pg.Translate(err)
		}
		if _, err := tx.ExecContext(ctx, restartSQL, company); err != nil {
			return pg.Translate(err)
		}
		var since *time.Time
		if err := tx.GetContext(ctx, &since, pausedAtSQL, company); err != nil {
			return pg.Translate(err)
		}
		if _, err := audit.Affected(tx.ExecContext(ctx, resumeSQL, company)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, dropSendsSQL, company); err != nil {
			return pg.Translate(err)
		}
		a.Details = map[string]any{"pausedAt": since}
		return event.AddOfCompany(ctx, tx, company, event.MailingsResumed, map[string]any{"pausedAt": since})
	})
	if resumed && err == nil {
		_ = s.wake(ctx, company) // on failure, the next full listing finds the lanes
	}
	return resumed, pg.Wrap("resume mailings", err)
}
