package tenant

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
)

// MaxRetentionDays is the longest retention that can be set for a company: ten years.
const MaxRetentionDays = 3650

// Retention is how long the data of one company is kept, in days from 1 to MaxRetentionDays;
// nil = the retention of the installation.
type Retention struct {
	CompanyID uuid.UUID `db:"company_id" json:"companyId"`
	// Bodies: contents of emails, from when the emails are final. They are deleted with the rows
	// of the outbox at the latest.
	Bodies *int `db:"bodies_days" json:"bodiesDays,omitempty"`
	// Files: uploaded files, from the end of their mailing.
	Files *int `db:"files_days" json:"filesDays,omitempty"`
	// Logs: logs and timelines of emails, from when the emails were accepted, and entries of
	// mailings, from the end of the mailing. They are never deleted before the row of the outbox.
	Logs *int `db:"logs_days" json:"logsDays,omitempty"`
	// Hashes: CPF and CNPJ, as a hash and encrypted: of a recipient, from the last write about the
	// person; of a mailing's entry, from the end of the mailing; of an email, from when it is final.
	// They are deleted with their rows at the latest.
	Hashes *int `db:"hashes_days" json:"hashesDays,omitempty"`
}

// RetentionError reports that a retention is invalid. Field is its JSON name.
type RetentionError struct{ Field string }

func (e *RetentionError) Error() string {
	return fmt.Sprintf("%s: must be 1 to %d days, or 0 for the installation's", e.Field, MaxRetentionDays)
}

// setRetentionSQL finds and locks the company's one row by primary key. A parameter of NULL leaves a value as it is, 0 removes
// it. It changes no row if the company has these values already, or has no row and gets no value.
const setRetentionSQL = `
INSERT INTO company_retention AS r (company_id, bodies_days, files_days, logs_days, hashes_days)
SELECT id, nullif($2::integer, 0), nullif($3::integer, 0), nullif($4::integer, 0), nullif($5::integer, 0) FROM companies
WHERE id = $1 AND (greatest($2, $3, $4, $5) > 0 OR EXISTS (SELECT FROM company_retention WHERE company_id = $1))
ON CONFLICT (company_id) DO UPDATE SET
    bodies_days = nullif(coalesce($2, r.bodies_days), 0), files_days = nullif(coalesce($3, r.files_days), 0),
    logs_days = nullif(coalesce($4, r.logs_days), 0), hashes_days = nullif(coalesce($5, r.hashes_days), 0), updated_at = now()
WHERE (coalesce(r.bodies_days, 0), coalesce(r.files_days, 0), coalesce(r.logs_days, 0), coalesce(r.hashes_days, 0))
    IS DISTINCT FROM (coalesce($2, r.bodies_days, 0), coalesce($3, r.files_days, 0), coalesce($4, r.logs_days, 0), coalesce($5, r.hashes_days, 0))
RETURNING company_id, bodies_days, files_days, logs_days, hashes_days`

// SetRetention changes the company's own retention. A value that is nil stays as it is, so that two operators can change
// different ones at the same time; with 0 the retention of the installation applies again. It returns the retention as it is
// then, *RetentionError if a value is invalid, and pg.ErrNotFound if there is no such company.
func (s *Store) SetRetention(ctx context.Context, by audit.Operator, r Retention) (set Retention, err error) {
	details := map[string]any{}
	for field, days := range map[string]*int{"bodiesDays": r.Bodies, "filesDays": r.Files, "logsDays": r.Logs, "hashesDays": r.Hashes} {
		switch {
		case days == nil:
		case *days == 0:
			details[field] = nil // the installation's
		case *days < 0 || *days > MaxRetentionDays:
			return Retention{}, &RetentionError{Field: field}
		default:
			details[field] = *days
		}
	}
	a := audit.Change{Action: "company.retention", Company: r.CompanyID, Details: details}
	changed, err := audit.Apply(ctx, s.db, by, a, func(tx *sqlx.Tx, _ *audit.Change) error {
		err := tx.GetContext(ctx, &set, setRetentionSQL, r.CompanyID, r.Bodies, r.Files, r.Logs, r.Hashes)
		if errors.Is(err, sql.ErrNoRows) {
			return audit.ErrUnchanged
		}
		return pg.Translate(err)
	})
	if err == nil && !changed {
		return s.FindRetention(ctx, r.CompanyID)
	}
	return set, pg.Wrap("set retention", err)
}

// findRetentionSQL finds the rows by the primary keys of companies and company_retention.
const findRetentionSQL = `
SELECT c.id AS company_id, r.bodies_days, r.files_days, r.logs_days, r.hashes_days
FROM companies c LEFT JOIN company_retention r ON r.company_id = c.id WHERE c.id = $1`

// FindRetention returns the company's own retention, or pg.ErrNotFound if there is no such company.
func (s *Store) FindRetention(ctx context.Context, company uuid.UUID) (Retention, error) {
	var r Retention
	if err := s.db.GetContext(ctx, &r, findRetentionSQL, company); err != nil {
		return Retention{}, fmt.Errorf("find retention: %w", pg.Translate(err))
	}
	return r, nil
}

// listRetentionsSQL reads the whole table, which is no longer than the list of companies.
const listRetentionsSQL = `SELECT company_id, bodies_days, files_days, logs_days, hashes_days FROM company_retention ORDER BY company_id`

// Retentions lists the companies that have or once had a retention of their own.
func (s *Store) Retentions(ctx context.Context) ([]Retention, error) {
	var all []Retention
	if err := s.db.SelectContext(ctx, &all, listRetentionsSQL); err != nil {
		return nil, fmt.Errorf("list retentions: %w", pg.Translate(err))
	}
	return all, nil
}
