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
	"email-gateway/shared/store/internal/pgtext"
)

// Operator is the person who makes a change with gatewayctl, with the reason. Every method with an Operator
// writes an entry to operator_audit in the commit of the change, unless it changes nothing. The methods
// named Record write an entry for data that an operator reads, or for changes in many commits.
type Operator struct {
	Name   string // not authenticated; "" is refused
	Reason string // "" = none given
	// Committed is set to true when a change by the operator is committed, so that the error of a later read does not
	// say that nothing was changed. nil = not needed.
	Committed *bool
}

// Actor returns the operator as rows and timelines record them.
func (o Operator) Actor() Actor { return Actor{By: ByOperator, Name: o.Name} }

// Change is a change as recorded in operator_audit.
type Change struct {
	Action  string    // company.suspend
	Company uuid.UUID // uuid.Nil = none, or all
	Subject string    // what was changed: an id or a domain, never a person's address
	Details map[string]any
}

// Log is the table operator_audit. It is safe for concurrent use.
type Log struct{ db *pg.DB }

// New returns a Log that uses the connections of db.
func New(db *pg.DB) *Log { return &Log{db: db} }

// Entry is a row of operator_audit.
type Entry struct {
	ID       int64     `db:"id" json:"id"`
	At       time.Time `db:"at" json:"at"`
	Operator string    `db:"operator" json:"operator"`
	// DatabaseRole is the role of the operator's database session. Unlike Operator, it is
	// authenticated by the database.
	DatabaseRole string          `db:"database_role" json:"databaseRole"`
	Action       string          `db:"action" json:"action"`
	CompanyID    *uuid.UUID      `db:"company_id" json:"companyId,omitempty"`
	Company      *string         `db:"company" json:"company,omitempty"`
	Subject      *string         `db:"subject" json:"subject,omitempty"`
	Details      json.RawMessage `db:"details" json:"details"`
	Reason       *string         `db:"reason" json:"reason,omitempty"`
}

// insertAuditSQL lets Postgres set the time and the database role: gateway_operator may not write
// them.
const insertAuditSQL = `
INSERT INTO operator_audit (operator, action, company_id, subject, details, reason)
VALUES ($1, $2, $3, nullif($4, ''), $5, nullif($6, ''))`

// ErrUnchanged means that a change had nothing to change.
var ErrUnchanged = errors.New("nothing to change")

// Apply makes an operator's change and writes its audit entry, in one commit. change may complete a,
// from which the entry is written. If change returns ErrUnchanged, Apply writes no entry and returns
// false.
func Apply(ctx context.Context, db *pg.DB, by Operator, a Change, change func(tx *sqlx.Tx, a *Change) error) (changed bool, err error) {
	return ApplyAll(ctx, db, by, func(tx *sqlx.Tx) ([]Change, error) {
		done := a // a copy: a repeated attempt starts from a again
		err := change(tx, &done)
		return []Change{done}, err
	})
}

// ApplyAll is Apply for a change that needs several entries, such as one for each company: change returns them.
func ApplyAll(ctx context.Context, db *pg.DB, by Operator, change func(tx *sqlx.Tx) ([]Change, error)) (changed bool, err error) {
	changed, err = apply(ctx, db, by, change)
	if changed && by.Committed != nil {
		*by.Committed = true
	}
	return changed, err
}

func apply(ctx context.Context, db *pg.DB, by Operator, change func(tx *sqlx.Tx) ([]Change, error)) (changed bool, err error) {
	if by.Name == "" {
		return false, errNoOperator
	}
	_, err = pg.Repeat(func() ([]struct{}, error) {
		return nil, db.InTx(ctx, func(tx *sqlx.Tx) error {
			changes, err := change(tx)
			if err != nil {
				return err
			}
			for _, a := range changes {
				if err := writeChange(ctx, tx, by, a); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if errors.Is(err, ErrUnchanged) {
		return false, nil
	}
	return err == nil, err
}

var errNoOperator = errors.New("the operator is not named")

func writeChange(ctx context.Context, tx *sqlx.Tx, by Operator, a Change) error {
	details, err := json.Marshal(a.Details)
	if err != nil {
		return fmt.Errorf("encode details: %w", err)
	}
	if a.Details == nil {
		details = []byte(`{}`)
	}
	_, err = tx.ExecContext(ctx, insertAuditSQL,
		pgtext.WithoutNUL(by.Name), a.Action, pg.OptionalUUID(a.Company), pgtext.WithoutNUL(a.Subject), string(pgtext.WithoutEscapedNUL(details)), pgtext.WithoutNUL(by.Reason))
	return pg.Translate(err)
}

// ApplyOne is Apply for one statement, which must affect only the rows that it changes: an UPDATE must
// exclude rows that have the new values already.
func ApplyOne(ctx context.Context, db *pg.DB, by Operator, a Change, statement string, args ...any) (changed bool, err error) {
	return Apply(ctx, db, by, a, func(tx *sqlx.Tx, _ *Change) error {
		_, err := Affected(tx.ExecContext(ctx, statement, args...))
		return err
	})
}

// Affected returns how many rows a statement has changed, or ErrUnchanged for none.
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

// Record writes an audit entry for an action without a change in the same commit.
func Record(ctx context.Context, db *pg.DB, by Operator, a Change) error {
	_, err := apply(ctx, db, by, func(*sqlx.Tx) ([]Change, error) { return []Change{a}, nil })
	return err
}

// RecordReveal writes an audit entry when an operator reads unmasked addresses. what is the kind of
// object, such as email, and subject its id.
func (l *Log) RecordReveal(ctx context.Context, by Operator, what string, company uuid.UUID, subject string) error {
	a := Change{Action: what + ".reveal", Company: company, Subject: subject}
	return pg.Wrap("record reveal", Record(ctx, l.db, by, a))
}

// Filter chooses rows of operator_audit; zero fields do not filter.
type Filter struct {
	Company  uuid.UUID
	Operator string
	// Action is one action, such as company.suspend, or the prefix of several, such as company.
	Action       string
	Since, Until *time.Time
	Limit        int
}

// listAuditSQL scans operator_audit_age backwards from the newest row and locks nothing.
const listAuditSQL = `
SELECT a.id, a.at, a.operator, a.database_role, a.action, a.company_id, c.name AS company, a.subject, a.details, a.reason
FROM operator_audit a LEFT JOIN companies c ON c.id = a.company_id
WHERE a.at >= coalesce($1::timestamptz, '-infinity') AND a.at < coalesce($2::timestamptz, 'infinity')
  AND ($3::uuid IS NULL OR a.company_id = $3) AND ($4 = '' OR a.operator = $4) AND ($5 = '' OR a.action = $5 OR starts_with(a.action, $5 || '.'))
ORDER BY a.at DESC, a.id DESC LIMIT $6`

// Audit lists audit entries, newest first.
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

// cleanAuditSQL finds rows by operator_audit_age and locks those that it deletes. The table's row policy
// also checks the age: gateway_dispatcher cannot delete younger rows.
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
