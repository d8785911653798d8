package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/quota"
)

// Querier is a transaction of a program that shares the database. *sql.Tx and *sqlx.Tx implement it, with any driver.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// These functions are all that a program's role (gateway_program) may call: see the migrations for what each reads and
// locks. They need no Store, because they run in the program's own transaction.
const (
	enqueueSQL = `
SELECT outbox_id, created, status FROM email_gateway_enqueue(
    $1::uuid, $2::text, $3::text, $4::text, $5::jsonb, $6::timestamptz, $7::bigint * interval '1 ms', nullif($8::text, ''))`
	rescheduleAggregateSQL = `
SELECT outbox_id, moved, status FROM email_gateway_reschedule($1::uuid, $2::text, $3::text, $4::text, $5::timestamptz, $6::bigint * interval '1 ms')`
	cancelAggregateSQL = `
SELECT outbox_id, event, cancelled, status FROM email_gateway_cancel($1::uuid, $2::text, $3::text, nullif($4::text, ''))`
)

// ProgramEmail is an email that a program enqueues.
type ProgramEmail struct {
	CompanyID uuid.UUID
	Aggregate Aggregate
	Body      []byte        // JSON body of POST /v1/email/send, without sendAt and aggregate
	SendAt    time.Time     // zero = now
	TTL       time.Duration // from now or SendAt, whichever is later
	RequestID string        // "" = the transaction's
}

// ProgramResult is the result for an email that a program wrote, moved or cancelled.
type ProgramResult struct {
	ID        uuid.UUID
	EventType string       // only set by CancelIn
	Done      bool         // false: the email existed already, or it is too late to change it
	Status    email.Status // as of this transaction
}

// ErrTransactionFull: the transaction has written the maximum number of emails of the company.
var ErrTransactionFull = errors.New("the transaction has written the maximum number of emails of the company")

// ErrCompanySuspended: the company is suspended. Its emails can be cancelled only.
var ErrCompanySuspended = errors.New("the company is suspended")

// refusals are the SQLSTATEs that the functions raise, except for quotas.
var refusals = map[pqerror.Code]error{"EG413": ErrTransactionFull, "EG403": ErrCompanySuspended}

// EnqueueIn writes an email in the transaction. *quota.Error: a quota of the company would be exceeded.
// ErrTransactionFull: the program must commit first. ErrCompanySuspended. Other errors of Postgres are returned
// unchanged; SQLSTATE 55P03 means that the company is close to a quota and another transaction is using the rest of it.
// After any error the transaction must be rolled back.
func EnqueueIn(ctx context.Context, tx Querier, e ProgramEmail) (ProgramResult, error) {
	results, err := queryResults(ctx, tx, false, enqueueSQL, e.CompanyID.String(), e.Aggregate.Type, e.Aggregate.ID, e.Aggregate.EventType,
		string(e.Body), sql.NullTime{Time: e.SendAt, Valid: !e.SendAt.IsZero()}, e.TTL.Milliseconds(), e.RequestID)
	return only("enqueue email", results, err)
}

// RescheduleIn moves an email to another time in the transaction, or returns pg.ErrNotFound if there is none.
func RescheduleIn(ctx context.Context, tx Querier, company uuid.UUID, a Aggregate, sendAt time.Time, ttl time.Duration) (ProgramResult, error) {
	results, err := queryResults(ctx, tx, false, rescheduleAggregateSQL, company.String(), a.Type, a.ID, a.EventType,
		sql.NullTime{Time: sendAt, Valid: !sendAt.IsZero()}, ttl.Milliseconds())
	return only("reschedule email", results, err)
}

// CancelIn cancels the emails of an aggregate in the transaction, or only that of a.EventType if it is set.
func CancelIn(ctx context.Context, tx Querier, company uuid.UUID, a Aggregate) ([]ProgramResult, error) {
	results, err := queryResults(ctx, tx, true, cancelAggregateSQL, company.String(), a.Type, a.ID, a.EventType)
	if err != nil {
		return nil, fmt.Errorf("cancel emails: %w", programError(err))
	}
	return results, nil
}

func only(operation string, results []ProgramResult, err error) (ProgramResult, error) {
	if err == nil && len(results) == 0 {
		err = pg.ErrNotFound
	}
	if err != nil {
		return ProgramResult{}, fmt.Errorf("%s: %w", operation, programError(err))
	}
	return results[0], nil
}

// programError maps an error of one of the functions to ErrTransactionFull, ErrCompanySuspended or *quota.Error.
func programError(err error) error {
	var refused *pq.Error
	if errors.As(err, &refused) && refusals[refused.Code] != nil {
		return errors.Join(refusals[refused.Code], err)
	}
	return quota.Refusal(err)
}

// queryResults reads the columns id, event type (only if named), done and status.
func queryResults(ctx context.Context, tx Querier, named bool, statement string, args ...any) (results []ProgramResult, err error) {
	rows, err := tx.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var r ProgramResult
		var id string
		var status sql.NullString
		into := []any{&id, &r.Done, &status}
		if named {
			into = []any{&id, &r.EventType, &r.Done, &status}
		}
		if err := rows.Scan(into...); err != nil {
			return nil, fmt.Errorf("read result: %w", err)
		}
		if r.ID, err = uuid.Parse(id); err != nil {
			return nil, fmt.Errorf("read result: %w", err)
		}
		r.Status = email.Status(status.String)
		results = append(results, r)
	}
	return results, rows.Err()
}
