package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/sql"
)

// Advance applies one transition in its own statement, for callers with one email. It waits at most LockWait (4 s) for
// a row that another transaction has locked. It then returns ErrAggregateBusy, and nothing was changed.
func (s *Store) Advance(ctx context.Context, t Transition) (Advanced, error) {
	t, err := t.encoded()
	if err != nil {
		return Advanced{}, err
	}
	results, err := pg.Repeat(func() ([]Advanced, error) {
		return advanceWaiting([]Transition{t}, LockWait, func(rows any, columns []any) error {
			return pg.Write(func(columns []any) error {
				return s.advanceWaiting.Select(ctx, rows, columns...)
			}, columns...)
		})
	})
	switch {
	case pg.IsLockTimeout(err):
		return Advanced{}, errors.Join(ErrAggregateBusy, err)
	case err != nil:
		return Advanced{}, err
	}
	return results[0], nil
}

// advance applies the transitions of a group. It does not wait for locked outbox rows, and waits for any other lock at
// most as long as wait.
func (s *Store) advance(ctx context.Context, ts []Transition, wait time.Duration) ([]Advanced, error) {
	statement, parameters := s.advanceEmail, advanceParameters
	if isPlain(ts) {
		statement, parameters = s.advancePlain, plainParameters
	}
	runs := 0
	moved, err := advance(ts, advanceArguments(parameters, ts, wait), func(rows any, columns []any) (err error) {
		runs, err = pg.WriteCounted(func(columns []any) error { return statement.Select(ctx, rows, columns...) }, columns...)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range moved {
		moved[i].Rerun = runs > 1
	}
	return moved, nil
}

// AdvanceIn is AdvanceAllIn for one email.
func AdvanceIn(ctx context.Context, tx *sqlx.Tx, t Transition) (Advanced, error) {
	results, err := AdvanceAllIn(ctx, tx, []Transition{t}, LockWait)
	if err != nil {
		return Advanced{}, err
	}
	return results[0], nil
}

// AdvanceAllIn applies transitions of different emails in the caller's transaction, and waits for each lock at most as
// long as wait. If the statement loses a race with another transaction, the caller must repeat its whole transaction.
func AdvanceAllIn(ctx context.Context, tx *sqlx.Tx, ts []Transition, wait time.Duration) ([]Advanced, error) {
	ready, err := encodeAll(ts)
	if err != nil {
		return nil, err
	}
	return advanceAllIn(ctx, tx, ready, wait)
}

// AdvanceFreeIn is AdvanceAllIn without a wait for emails that another transaction has locked: these are Locked.
func AdvanceFreeIn(ctx context.Context, tx *sqlx.Tx, ts []Transition) ([]Advanced, error) {
	ready, err := encodeAll(ts)
	if err != nil {
		return nil, err
	}
	return advance(ready, advanceArguments(advanceParameters, ready, LockWait), func(rows any, columns []any) error {
		return pg.Translate(tx.SelectContext(ctx, rows, sql.Advance, columns...))
	})
}

// advanceAllIn is AdvanceAllIn for encoded transitions.
func advanceAllIn(ctx context.Context, tx *sqlx.Tx, ts []Transition, wait time.Duration) ([]Advanced, error) {
	return advanceWaiting(ts, wait, func(rows any, columns []any) error {
		return pg.Translate(tx.SelectContext(ctx, rows, sql.AdvanceWaiting, columns...))
	})
}

// advanceWaiting applies encoded transitions, and waits for each lock at most as long as wait.
func advanceWaiting(ts []Transition, wait time.Duration, run func(rows any, columns []any) error) ([]Advanced, error) {
	results, err := advance(ts, advanceArguments(advanceParameters, ts, wait), run)
	for i := range results {
		// The statement waits for locked rows, so without GiveWay a row that it did not find was deleted meanwhile.
		results[i].Locked = results[i].Locked && ts[i].GiveWay
	}
	return results, err
}
