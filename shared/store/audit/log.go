// Package audit records the changes that operators make in operator_audit, each in the transaction of the change.
package audit

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

// Operator is the person who makes a change with gatewayctl, with the reason. Every method that takes one
// writes an entry to operator_audit, in the commit of the change, unless it changes nothing. The methods
// named Record write an entry for what an operator reads, or does in many commits.
type Operator struct {
	Name   string // by their own word; "" is refused
	Reason string // "" = none given
}

// Actor returns the operator as rows and timelines record them.
func (o Operator) Actor() Actor { return Actor{By: ByOperator, Name: o.Name} }

// Change is a change as recorded in operator_audit.
type Change struct {
	Action  string    // company.suspend
	Company uuid.UUID // uuid.Nil = of none, or of all
	Subject string    // what was changed: an id or a domain, never a person's address
	Details map[string]any
}

// Log is the table operator_audit. It is safe for concurrent use.
type Log struct{ db *pg.DB }

// New makes a Log.
func New(db *pg.DB) *Log { return &Log{db: db} }

// Entry is a row of operator_audit.
type Entry struct {
	ID       int64     `db:"id" json:"id"`
	At       time.Time `db:"at" json:"at"`
	Operator string    `db:"operator" json:"operator"`
	// DatabaseRole is the role of the operator's database session. Unlike Operator, the database
	// vouches for it.
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

// ErrUnchanged is what a change ends with that changes nothing.
var ErrUnchanged = errors.New("it stays as it is")

// Apply carries out an operator's change and writes it down, in one commit: neither is
// there without the other. change may complete what is written, and ends with ErrUnchanged
// where there is nothing to change: then nothing is written down, and changed is false.
func Apply(ctx context.Context, db *pg.DB, by Operator, a Change, change func(tx *sqlx.Tx, a *Change) error) (changed bool, err error) {
	if by.Name == "" {
		return false, fmt.Errorf("%s: %w", a.Action, errNoOperator)
	}
	_, err = pg.Repeat(func() ([]struct{}, error) {
		done := a // a round that lost its race leaves nothing behind
		return nil, db.InTx(ctx, func(tx *sqlx.Tx) error {
			if err := change(tx, &done); err != nil {
				return err
			}
			return writeChange(ctx, tx, by, done)
		})
	})
	if errors.Is(err, ErrUnchanged) {
		return false, nil
	}
	return err == nil, err
}

var errNoOperator = errors.New("who does it is not said")

func writeChange(ctx context.Context, tx *sqlx.Tx, by Operator, a Change) error {
	details, err := json.Marshal(a.Details)
	if err != nil {
		return fmt.Errorf("encode details: %w", err)
	}
	if a.Details == nil {
		details = []byte(`{}`)
	}
	_, err = tx.ExecContext(ctx, insertAuditSQL,
		pg.WithoutNUL(by.Name), a.Action, pg.OptionalUUID(a.Company), pg.WithoutNUL(a.Subject), string(pg.WithoutEscapedNUL(details)), pg.WithoutNUL(by.Reason))
	return pg.Translate(err)
}

// ApplyOne is Apply for one statement, which must match the rows that it changes and no
// others: an UPDATE leaves out rows that have the new values already.
func ApplyOne(ctx context.Context, db *pg.DB, by Operator, a Change, statement string, args ...any) (changed bool, err error) {
	return Apply(ctx, db, by, a, func(tx *sqlx.Tx, _ *Change) error {
		_, err := Affected(tx.ExecContext(ctx, statement, args...))
		return err
	})
}

// Affected is how many rows a statement has changed; ErrUnchanged for none.
func Affected(result sql.Result, err error) (int, error) {
	if err != nil {
		return 0, pg.Translate(err)
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		err = ErrUnchanged
	}
	return int(n), err
}

// MustChange passes on the results of ApplyOne, and returns pg.ErrNotFound if the statement changed no row.
func MustChange(changed bool, err error) error {
	if err == nil && !changed {
		return pg.ErrNotFound
	}
	return err
}

// Record writes down what an operator does that is no change of this commit's.
func Record(ctx context.Context, db *pg.DB, by Operator, a Change) error {
	_, err := Apply(ctx, db, by, a, func(*sqlx.Tx, *Change) error { return nil })
	return err
}

// RecordReveal writes down that an operator looks at people's addresses in full. what
// names the kind of thing, such as email, and subject its id.
func (l *Log) RecordReveal(ctx context.Context, by Operator, what string, company uuid.UUID, subject string) error {
	a := Change{Action: what + ".reveal", Company: company, Subject: subject}
	return pg.Wrap("record reveal", Record(ctx, l.db, by, a))
}

// Filter chooses rows of operator_audit; zero fields do not filter.
type Filter struct {
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
func (l *Log) Audit(ctx context.Context, f Filter) ([]Entry, error) {
	entries := []Entry{}
	err := l.db.SelectContext(ctx, &entries, listAuditSQL, f.Since, f.Until, pg.OptionalUUID(f.Company), f.Operator, f.Action, f.Limit)
	if err != nil {
		return nil, fmt.Errorf("list audit: %w", pg.Translate(err))
	}
	for i := range entries {
		entries[i].At = entries[i].At.UTC()
	}
	return entries, nil
}

// cleanAuditSQL finds by operator_audit_age and locks what it deletes. The table's policy contains the age
// too: gateway_dispatcher could not delete younger rows.
const cleanAuditSQL = `
DELETE FROM operator_audit WHERE id IN (
    SELECT id FROM operator_audit WHERE at < now() - interval '2 years' ORDER BY at, id LIMIT $1)`

// CleanAudit deletes at most limit rows that are older than two years and returns their
// number.
func (l *Log) CleanAudit(ctx context.Context, limit int) (int, error) {
	result, err := l.db.Exec(ctx, cleanAuditSQL, limit)
	if err != nil {
		return 0, fmt.Errorf("clean audit: %w", err)
	}
	n, err := result.RowsAffected()
	return int(n), pg.Wrap("clean audit", err)
}
