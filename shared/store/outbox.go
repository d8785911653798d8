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
	Guard               = outbox.Guard
	Transition          = outbox.Transition
	Advanced            = outbox.Advanced

	outboxes = outbox.Store
)

// Constants of package outbox.
const (
	GuardClaim      = outbox.GuardClaim
	GuardAttempt    = outbox.GuardAttempt
	GuardOpen       = outbox.GuardOpen
	GuardOverdue    = outbox.GuardOverdue
	GuardAbandoned  = outbox.GuardAbandoned
	GuardUnresolved = outbox.GuardUnresolved
	GuardReplay     = outbox.GuardReplay

	SmallBody = outbox.SmallBody
)

// ErrAggregateBusy is outbox.ErrAggregateBusy.
var ErrAggregateBusy = outbox.ErrAggregateBusy

// ErrAggregateTooLarge is outbox.ErrAggregateTooLarge.
var ErrAggregateTooLarge = outbox.ErrAggregateTooLarge

// MostAggregateEmails is outbox.MostAggregateEmails.
const MostAggregateEmails = outbox.MostAggregateEmails

// AdvanceAllIn applies transitions of different emails in the caller's transaction, and waits for each lock at most as long as
// wait. If the statement loses a race with another transaction, the caller must repeat its whole transaction.
func AdvanceAllIn(ctx context.Context, tx *sqlx.Tx, ts []Transition, wait time.Duration) ([]Advanced, error) {
	return outbox.AdvanceAllIn(ctx, tx, ts, wait)
}

// Types for programs that write emails in their own transactions, and Move, which reschedules an email.
type (
	Querier       = outbox.Querier
	ProgramEmail  = outbox.ProgramEmail
	ProgramResult = outbox.ProgramResult
	Move          = outbox.Move
)

// ErrTransactionFull is outbox.ErrTransactionFull.
var ErrTransactionFull = outbox.ErrTransactionFull

// ErrCompanySuspended is outbox.ErrCompanySuspended.
var ErrCompanySuspended = outbox.ErrCompanySuspended

// EnqueueIn writes an email in the transaction. *QuotaError: a quota of the company would be exceeded. ErrTransactionFull: the
// program must commit first. Other errors of Postgres are returned unchanged; SQLSTATE 55P03 means that the company is close to
// a quota and another transaction is using the rest of it. After any error the transaction must be rolled back.
func EnqueueIn(ctx context.Context, tx Querier, e ProgramEmail) (ProgramResult, error) {
	return outbox.EnqueueIn(ctx, tx, e)
}

// RescheduleIn moves an email to another time in the transaction, or returns ErrNotFound if there is none.
func RescheduleIn(ctx context.Context, tx Querier, company uuid.UUID, a Aggregate, sendAt time.Time, ttl time.Duration) (ProgramResult, error) {
	return outbox.RescheduleIn(ctx, tx, company, a, sendAt, ttl)
}

// CancelIn cancels the emails of an aggregate in the transaction, or only that of a.EventType if it is set.
func CancelIn(ctx context.Context, tx Querier, company uuid.UUID, a Aggregate) ([]ProgramResult, error) {
	return outbox.CancelIn(ctx, tx, company, a)
}
