package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// Operator is who changes something by hand, and why. Every method that is given one
// writes it down in operator_audit, in the commit of the change; what changes nothing,
// because it is so already or cannot be, it does not write down. What an operator looks
// at, or has done in many commits, is written down by the methods named Record.
type Operator struct {
	Name   string // by their own word; "" is refused
	Reason string // "" = none given
}

func (o Operator) actor() Actor { return Actor{By: ByOperator, Name: o.Name} }

// act is a change as operator_audit tells of it.
type act struct {
	action  string    // company.suspend
	company uuid.UUID // uuid.Nil = of none, or of all
	subject string    // what was changed: an id or a domain, never a person's address
	details map[string]any
}

// AuditEntry is a row of operator_audit.
type AuditEntry struct {
	ID       int64     `db:"id" json:"id"`
	At       time.Time `db:"at" json:"at"`
	Operator string    `db:"operator" json:"operator"`
	// DatabaseRole is who the database took the operator for. Unlike Operator, it is
	// nobody's own word.
	DatabaseRole string          `db:"database_role" json:"databaseRole"`
	Action       string          `db:"action" json:"action"`
	CompanyID    *uuid.UUID      `db:"company_id" json:"companyId,omitempty"`
	Company      *string         `db:"company" json:"company,omitempty"`
	Subject      *string         `db:"subject" json:"subject,omitempty"`
	Details      json.RawMessage `db:"details" json:"details"`
	Reason       *string         `db:"reason" json:"reason,omitempty"`
}

// insertAuditSQL leaves time and database role to Postgres: gateway_operator may not
// write them.
const insertAuditSQL = `
INSERT INTO operator_audit (operator, action, company_id, subject, details, reason)
VALUES ($1, $2, $3, nullif($4, ''), $5, nullif($6, ''))`

// errStands is what a change ends with that changes nothing.
var errStands = errors.New("it stays as it is")

// audited carries out an operator's change and writes it down, in one commit: neither is
// there without the other. change may complete what is written, and ends with errStands
// where there is nothing to change: then nothing is written down, and changed is false.
func (s *Store) audited(ctx context.Context, by Operator, a act, change func(tx *sqlx.Tx, a *act) error) (changed bool, err error) {
	if by.Name == "" {
		return false, fmt.Errorf("%s: %w", a.action, errNoOperator)
	}
	_, err = pg.Repeat(func() ([]struct{}, error) {
		done := a // a round that lost its race leaves nothing behind
		return nil, s.db.InTx(ctx, func(tx *sqlx.Tx) error {
			if err := change(tx, &done); err != nil {
				return err
			}
			return writeAct(ctx, tx, by, done)
		})
	})
	if errors.Is(err, errStands) {
		return false, nil
	}
	return err == nil, err
}

var errNoOperator = errors.New("who does it is not said")

func writeAct(ctx context.Context, tx *sqlx.Tx, by Operator, a act) error {
	details, err := json.Marshal(a.details)
	if err != nil {
		return fmt.Errorf("encode details: %w", err)
	}
	if a.details == nil {
		details = []byte(`{}`)
	}
	_, err = tx.ExecContext(ctx, insertAuditSQL,
		pg.WithoutNUL(by.Name), a.action, optionalUUID(a.company), pg.WithoutNUL(a.subject), string(pg.WithoutEscapedNUL(details)), pg.WithoutNUL(by.Reason))
	return pg.Translate(err)
}

// auditedOne is audited for one statement, which must hit the rows that it changes and no
// others: an UPDATE to what stands there already leaves them out.
func (s *Store) auditedOne(ctx context.Context, by Operator, a act, statement string, args ...any) (changed bool, err error) {
	return s.audited(ctx, by, a, func(tx *sqlx.Tx, _ *act) error {
		_, err := hit(tx.ExecContext(ctx, statement, args...))
		return err
	})
}

// hit is how many rows a statement has changed; errStands for none.
func hit(result sql.Result, err error) (int, error) {
	if err != nil {
		return 0, pg.Translate(err)
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		err = errStands
	}
	return int(n), err
}

// mustChange turns a change of nothing into ErrNotFound, where what is changed is what is
// looked for.
func mustChange(changed bool, err error) error {
	if err == nil && !changed {
		return pg.ErrNotFound
	}
	return err
}

// record writes down what an operator does that is no change of this commit's.
func (s *Store) record(ctx context.Context, by Operator, a act) error {
	_, err := s.audited(ctx, by, a, func(*sqlx.Tx, *act) error { return nil })
	return err
}

// RecordReveal writes down that an operator looks at people's addresses in full. what
// names the kind of thing, such as email, and subject its id.
func (s *Store) RecordReveal(ctx context.Context, by Operator, what string, company uuid.UUID, subject string) error {
	a := act{action: what + ".reveal", company: company, subject: subject}
	return pg.Wrap("record reveal", s.record(ctx, by, a))
}

// AuditFilter chooses rows of operator_audit; zero fields do not filter.
type AuditFilter struct {
	Company  uuid.UUID
	Operator string
	// Action is one, such as company.suspend, or all about a thing: company.
	Action       string
	Since, Until *time.Time
	Limit        int
}

// listAuditSQL reads operator_audit_age from its newest row back and locks nothing.
const listAuditSQL = `
SELECT a.id, a.at, a.operator, a.database_role, a.action, a.company_id, c.name AS company, a.subject, a.details, a.reason
FROM operator_audit a LEFT JOIN companies c ON c.id = a.company_id
WHERE a.at >= coalesce($1::timestamptz, '-infinity') AND a.at < coalesce($2::timestamptz, 'infinity')
  AND ($3::uuid IS NULL OR a.company_id = $3) AND ($4 = '' OR a.operator = $4) AND ($5 = '' OR a.action = $5 OR starts_with(a.action, $5 || '.'))
ORDER BY a.at DESC, a.id DESC LIMIT $6`

// Audit lists what operators did, the newest first.
func (s *Store) Audit(ctx context.Context, f AuditFilter) ([]AuditEntry, error) {
	entries := []AuditEntry{}
	err := s.db.SelectContext(ctx, &entries, listAuditSQL, f.Since, f.Until, optionalUUID(f.Company), f.Operator, f.Action, f.Limit)
	if err != nil {
		return nil, fmt.Errorf("list audit: %w", pg.Translate(err))
	}
	for i := range entries {
		entries[i].At = entries[i].At.UTC()
	}
	return entries, nil
}

// cleanAuditSQL finds by operator_audit_age and locks what it deletes. The age stands in
// the table's policy too: gateway_dispatcher could delete nothing younger.
const cleanAuditSQL = `
DELETE FROM operator_audit WHERE id IN (
    SELECT id FROM operator_audit WHERE at < now() - interval '2 years' ORDER BY at, id LIMIT $1)`

// CleanAudit deletes at most limit rows that are older than two years and says how many
// there were.
func (s *Store) CleanAudit(ctx context.Context, limit int) (int, error) {
	result, err := s.db.Exec(ctx, cleanAuditSQL, limit)
	if err != nil {
		return 0, fmt.Errorf("clean audit: %w", err)
	}
	n, err := result.RowsAffected()
	return int(n), pg.Wrap("clean audit", err)
}
