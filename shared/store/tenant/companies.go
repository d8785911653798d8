// Package tenant contains the SQL statements of companies and their API keys, sender domains, programs that share the
// database, and retention periods.
package tenant

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/email"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	db   *pg.DB
	wake func(ctx context.Context, company uuid.UUID) error
}

// New returns a Store that uses the connections of db. wake makes dispatchers read a company's lanes.
func New(db *pg.DB, wake func(ctx context.Context, company uuid.UUID) error) *Store {
	return &Store{db: db, wake: wake}
}

// Company is a tenant.
type Company struct {
	ID              uuid.UUID  `db:"id" json:"id"`
	Name            string     `db:"name" json:"name"`
	DefaultFrom     string     `db:"default_from" json:"defaultFrom"`
	SuspendedAt     *time.Time `db:"suspended_at" json:"suspendedAt,omitempty"`
	SuspendedReason *string    `db:"suspended_reason" json:"suspendedReason,omitempty"`
	// MailingsPausedAt is when the reputation guard paused the company's mailings; nil = it has not.
	MailingsPausedAt *time.Time `db:"mailings_paused_at" json:"mailingsPausedAt,omitempty"`
	CreatedAt        time.Time  `db:"created_at" json:"createdAt"`
}

// NewCompany is a company to create.
type NewCompany struct {
	ID          uuid.UUID
	Name        string
	DefaultFrom string // checked by the caller
	// SenderDomains are domains that it may send from, each in ASCII form and lower case.
	SenderDomains []string
}

// The company and its lanes are written in one commit, because accepting a request of the company
// requires the lane of the request's queue.
const (
	insertCompanySQL = `INSERT INTO companies (id, name, default_from) VALUES ($1, $2, $3)`
	insertLanesSQL   = `INSERT INTO dispatch_lanes (company_id, queue) SELECT $1, unnest($2::text[])`
	insertDomainsSQL = `INSERT INTO sender_domains (company_id, domain) SELECT DISTINCT $1::uuid, unnest($2::text[])`
)

// CreateCompany adds a company with one lane per queue and its sender domains. It returns
// pg.ErrExists if the name is taken.
func (s *Store) CreateCompany(ctx context.Context, by audit.Operator, c NewCompany) error {
	a := audit.Change{Action: "company.create", Company: c.ID, Details: map[string]any{"name": c.Name}}
	_, err := audit.Apply(ctx, s.db, by, a, func(tx *sqlx.Tx, _ *audit.Change) error {
		if _, err := tx.ExecContext(ctx, insertCompanySQL, c.ID, c.Name, c.DefaultFrom); err != nil {
			return pg.Translate(err)
		}
		if _, err := tx.ExecContext(ctx, insertLanesSQL, c.ID, pq.Array(slices.Concat(email.Queues(), email.BulkQueues()))); err != nil {
			return pg.Translate(err)
		}
		_, err := tx.ExecContext(ctx, insertDomainsSQL, c.ID, pq.Array(c.SenderDomains))
		return pg.Translate(err)
	})
	if err != nil {
		return fmt.Errorf("create company: %w", err)
	}
	return nil
}

// listCompaniesSQL reads the whole table: it has one row per tenant.
const listCompaniesSQL = `
SELECT id, name, default_from, suspended_at, suspended_reason, mailings_paused_at, created_at FROM companies ORDER BY name`

// Companies lists all companies by name.
func (s *Store) Companies(ctx context.Context) ([]Company, error) {
	var all []Company
	if err := s.db.SelectContext(ctx, &all, listCompaniesSQL); err != nil {
		return nil, fmt.Errorf("list companies: %w", pg.Translate(err))
	}
	return all, nil
}

// Sender is a company with what it needs to send emails.
type Sender struct {
	Company
	HasKey  bool           `db:"has_key"` // an API key that has not ended
	Domains pq.StringArray `db:"domains"`
}

// listSendersSQL reads companies, api_keys and sender_domains once each. It locks nothing.
const listSendersSQL = `
SELECT c.id, c.name, c.default_from, c.suspended_at, c.suspended_reason, c.mailings_paused_at, c.created_at,
       k.company_id IS NOT NULL AS has_key, coalesce(d.domains, '{}') AS domains
FROM companies c
LEFT JOIN (SELECT DISTINCT company_id FROM api_keys
           WHERE coalesce(expires_at > now(), true) AND coalesce(revoked_at > now(), true)) k ON k.company_id = c.id
LEFT JOIN (SELECT company_id, array_agg(domain ORDER BY domain) AS domains FROM sender_domains GROUP BY company_id) d ON d.company_id = c.id
ORDER BY c.name`

// Senders lists all companies by name.
func (s *Store) Senders(ctx context.Context) ([]Sender, error) {
	var all []Sender
	if err := s.db.SelectContext(ctx, &all, listSendersSQL); err != nil {
		return nil, fmt.Errorf("list senders: %w", pg.Translate(err))
	}
	return all, nil
}

// findCompanySQL finds the company by primary key or by the unique name.
const findCompanySQL = `
SELECT id, name, default_from, suspended_at, suspended_reason, mailings_paused_at, created_at FROM companies WHERE id = $1 OR name = $2`

// FindCompany finds a company by its id or its exact name.
func (s *Store) FindCompany(ctx context.Context, idOrName string) (Company, error) {
	id, err := uuid.Parse(idOrName)
	if err != nil {
		id = uuid.Nil // a name: no company has this id
	}
	var c Company
	if err := s.db.GetContext(ctx, &c, findCompanySQL, id, idOrName); err != nil {
		return Company{}, fmt.Errorf("find company: %w", pg.Translate(err))
	}
	return c, nil
}

// Both statements lock one row by primary key, and none if the company is in the requested state
// already. The fence and the dispatcher read suspended_at, so no email of the company starts after
// suspendCompanySQL is committed.
const (
	suspendCompanySQL = `
UPDATE companies SET suspended_at = coalesce(suspended_at, now()), suspended_reason = $2
WHERE id = $1 AND (suspended_at IS NULL OR suspended_reason IS DISTINCT FROM $2)`
	resumeCompanySQL = `UPDATE companies SET suspended_at = NULL, suspended_reason = NULL WHERE id = $1 AND suspended_at IS NOT NULL`
)

// SuspendCompany makes the gateway refuse the company's requests and hold its emails, for the
// operator's reason. If the company is suspended already, it changes only the reason.
func (s *Store) SuspendCompany(ctx context.Context, by audit.Operator, id uuid.UUID) error {
	return pg.Wrap("suspend company", ChangeCompany(ctx, s.db, by, audit.Change{Action: "company.suspend", Company: id}, suspendCompanySQL, id, by.Reason))
}

// ResumeCompany ends a suspension. The waiting emails are sent.
func (s *Store) ResumeCompany(ctx context.Context, by audit.Operator, id uuid.UUID) error {
	if err := ChangeCompany(ctx, s.db, by, audit.Change{Action: "company.resume", Company: id}, resumeCompanySQL, id); err != nil {
		return pg.Wrap("resume company", err)
	}
	_ = s.wake(ctx, id) // on failure, the next full listing finds them
	return nil
}

// ChangeCompany is audit.ApplyOne for a statement that changes nothing if the company is in the requested state already;
// pg.ErrNotFound if there is no such company.
func ChangeCompany(ctx context.Context, db *pg.DB, by audit.Operator, a audit.Change, statement string, args ...any) error {
	changed, err := audit.ApplyOne(ctx, db, by, a, statement, args...)
	if err == nil && !changed {
		_, err = (&Store{db: db}).FindCompany(ctx, a.Company.String())
	}
	return err
}
