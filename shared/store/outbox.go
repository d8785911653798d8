package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/outbox"
)

// Types of package outbox.
type (
	Advancer            = outbox.Advancer
	Aggregate           = outbox.Aggregate
	AggregateTakenError = outbox.AggregateTakenError
	AggregateEmail      = outbox.AggregateEmail
	NewBatch            = outbox.NewBatch
	BatchResult         = outbox.BatchResult
	EarlierEmail        = outbox.EarlierEmail
	BatchOutcome        = outbox.BatchOutcome
	NewEmail            = outbox.NewEmail
	Accepter            = outbox.Accepter
	LoadedEmail         = outbox.LoadedEmail
	Loader              = outbox.Loader
	Guard               = outbox.Guard
	Transition          = outbox.Transition
	Advanced            = outbox.Advanced

	outboxes = outbox.Store
)

// Constants of package outbox.
const (
	GuardClaim      = outbox.GuardClaim
	GuardAttempt    = outbox.GuardAttempt
	GuardFeedback   = outbox.GuardFeedback
	GuardOpen       = outbox.GuardOpen
	GuardOverdue    = outbox.GuardOverdue
	GuardAbandoned  = outbox.GuardAbandoned
	GuardUnresolved = outbox.GuardUnresolved
	GuardReplay     = outbox.GuardReplay

	SmallBody = outbox.SmallBody
)

// ErrAggregateBusy is outbox.ErrAggregateBusy.
var ErrAggregateBusy = outbox.ErrAggregateBusy

// AdvanceAllIn applies transitions of different emails as a part of a transaction, and waits at most wait for each lock. One
// that lost a race is for the caller to repeat as a whole.
func AdvanceAllIn(ctx context.Context, tx *sqlx.Tx, ts []Transition, wait time.Duration) ([]Advanced, error) {
	return outbox.AdvanceAllIn(ctx, tx, ts, wait)
}

// Types of emails that programs write into transactions of their own, and of moves to another time.
type (
	Querier       = outbox.Querier
	ProgramEmail  = outbox.ProgramEmail
	ProgramResult = outbox.ProgramResult
	Move          = outbox.Move
)

// ErrTransactionFull is outbox.ErrTransactionFull.
var ErrTransactionFull = outbox.ErrTransactionFull

// EnqueueIn writes an email into the transaction. *QuotaError: a quota of the company would
// be exceeded. ErrTransactionFull: the program must commit first. Postgres's other errors are
// returned unchanged; SQLSTATE 55P03 means that the company is close to a quota, and another
// transaction is using what is left. After any of them the transaction must be rolled back.
func EnqueueIn(ctx context.Context, tx Querier, e ProgramEmail) (ProgramResult, error) {
	return outbox.EnqueueIn(ctx, tx, e)
}

// RescheduleIn moves an email in the transaction; ErrNotFound if there is none.
func RescheduleIn(ctx context.Context, tx Querier, company uuid.UUID, a Aggregate, sendAt time.Time, ttl time.Duration) (ProgramResult, error) {
	return outbox.RescheduleIn(ctx, tx, company, a, sendAt, ttl)
}

// CancelIn withdraws the emails of an aggregate in the transaction; of one event type
// where a names it.
func CancelIn(ctx context.Context, tx Querier, company uuid.UUID, a Aggregate) ([]ProgramResult, error) {
	return outbox.CancelIn(ctx, tx, company, a)
}
