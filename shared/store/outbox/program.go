package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/quota"
)

// Querier is a transaction of a program that shares the database. *sql.Tx and *sqlx.Tx
// are ones, whatever the driver.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// The functions that a program may call, which are all that its role (gateway_program)
// may do: see the migrations for what each reads and locks. They are here and not with a
// Store because they run in the program's own transaction.
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
	Body      []byte        // JSON, as POST /v1/email/send takes it, without outbox.SendAt and aggregate
	SendAt    time.Time     // zero = now
	TTL       time.Duration // from now or SendAt, whichever is later
	RequestID string        // "" = the transaction's
}

// ProgramResult is the result for an email that a program wrote, moved or cancelled.
type ProgramResult struct {
	ID        uuid.UUID
	EventType string       // of a cancel
	Done      bool         // false: it was there already, or it is too late
	Status    email.Status // as of this transaction
}

// ErrTransactionFull: the transaction has written as many emails of the company as it may.
var ErrTransactionFull = errors.New("the transaction has written as many emails of the company as it may")

// transactionFull is the SQLSTATE of a function that refuses because of it.
const transactionFull = "EG413"

// EnqueueIn writes an email into the transaction. *quota.Error: a quota of the company would
// be exceeded. ErrTransactionFull: the program must commit first. Postgres's other errors are
// returned unchanged; SQLSTATE 55P03 means that the company is close to a quota, and another
// transaction is using what is left. After any of them the transaction must be rolled back.
func EnqueueIn(ctx context.Context, tx Querier, e ProgramEmail) (ProgramResult, error) {
	results, err := queryResults(ctx, tx, false, enqueueSQL, e.CompanyID.String(), e.Aggregate.Type, e.Aggregate.ID, e.Aggregate.EventType,
		string(e.Body), sql.NullTime{Time: e.SendAt, Valid: !e.SendAt.IsZero()}, e.TTL.Milliseconds(), e.RequestID)
	return only("enqueue email", results, err)
}

// RescheduleIn moves an email in the transaction; pg.ErrNotFound if there is none.
func RescheduleIn(ctx context.Context, tx Querier, company uuid.UUID, a Aggregate, sendAt time.Time, ttl time.Duration) (ProgramResult, error) {
	results, err := queryResults(ctx, tx, false, rescheduleAggregateSQL, company.String(), a.Type, a.ID, a.EventType,
		sql.NullTime{Time: sendAt, Valid: !sendAt.IsZero()}, ttl.Milliseconds())
	return only("reschedule email", results, err)
}

// CancelIn withdraws the emails of an aggregate in the transaction; of one event type
// where a names it.
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

// programError reads what a refusal of one of the functions means.
func programError(err error) error {
	var refused *pq.Error
	if errors.As(err, &refused) && refused.Code == transactionFull {
		return errors.Join(ErrTransactionFull, err)
	}
	return quota.Refusal(err)
}

// queryResults reads id, event type where there is one, done and status.
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
