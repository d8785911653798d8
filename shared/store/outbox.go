package store

import (
	"context"
	"time"

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
)

// ErrAggregateBusy is outbox.ErrAggregateBusy.
var ErrAggregateBusy = outbox.ErrAggregateBusy

// AdvanceAllIn applies transitions of different emails as a part of a transaction, and waits at most wait for each lock. One
// that lost a race is for the caller to repeat as a whole.
func AdvanceAllIn(ctx context.Context, tx *sqlx.Tx, ts []Transition, wait time.Duration) ([]Advanced, error) {
	return outbox.AdvanceAllIn(ctx, tx, ts, wait)
}
