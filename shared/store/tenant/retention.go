package tenant

import (
	"context"
	"fmt"

	"github.com/google/uuid"

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
	return fmt.Sprintf("%s: must be 1 to %d days", e.Field, MaxRetentionDays)
}

// setRetentionSQL finds and locks the company's one row by primary key. It changes no row if the
// company has these values already, or has no row and all values are NULL.
const setRetentionSQL = `
INSERT INTO company_retention AS r (company_id, bodies_days, files_days, logs_days, hashes_days)
SELECT id, $2::integer, $3::integer, $4::integer, $5::integer FROM companies
WHERE id = $1 AND (num_nonnulls($2::integer, $3::integer, $4::integer, $5::integer) > 0 OR EXISTS (SELECT FROM company_retention WHERE company_id = $1))
ON CONFLICT (company_id) DO UPDATE SET
    bodies_days = excluded.bodies_days, files_days = excluded.files_days, logs_days = excluded.logs_days, hashes_days = excluded.hashes_days, updated_at = now()
WHERE (r.bodies_days, r.files_days, r.logs_days, r.hashes_days)
    IS DISTINCT FROM (excluded.bodies_days, excluded.files_days, excluded.logs_days, excluded.hashes_days)`

// SetRetention replaces the company's own retention. It returns *RetentionError if a value is invalid,
// and pg.ErrNotFound if there is no such company.
func (s *Store) SetRetention(ctx context.Context, by audit.Operator, r Retention) error {
	for field, days := range map[string]*int{"bodiesDays": r.Bodies, "filesDays": r.Files, "logsDays": r.Logs, "hashesDays": r.Hashes} {
		if days != nil && (*days < 1 || *days > MaxRetentionDays) {
			return &RetentionError{Field: field}
		}
	}
	a := audit.Change{
		Action: "company.retention", Company: r.CompanyID,
		Details: map[string]any{"bodiesDays": r.Bodies, "filesDays": r.Files, "logsDays": r.Logs, "hashesDays": r.Hashes}, // null = the installation's
	}
	return pg.Wrap("set retention", ChangeCompany(ctx, s.db, by, a, setRetentionSQL, r.CompanyID, r.Bodies, r.Files, r.Logs, r.Hashes))
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
