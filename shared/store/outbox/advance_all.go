package outbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// AdvanceAll applies transitions of different emails of a company in one commit, for a client
// that waits for the answer, and returns their results in order. A program's open
// transaction may hold an email for any time: after 4 s that is
// ErrAggregateBusy, or pg.ErrBusy at once when too many others wait already, and nothing was changed.
func (s *Store) AdvanceAll(ctx context.Context, company uuid.UUID, ts []Transition) ([]Advanced, error) {
	encoded := make([]Transition, len(ts))
	for i, t := range ts {
		var err error
		if encoded[i], err = t.encoded(); err != nil {
			return nil, err
		}
	}
	if len(ts) == 0 {
		return nil, nil
	}
	all, err := pg.InBoundedTx(ctx, s.db, pg.HeldRow{Company: company, Name: ts[0].ID.String()}, func(tx *sqlx.Tx, wait time.Duration) (all []Advanced, err error) {
		for some := range slices.Chunk(encoded, pg.GroupRows) {
			done, err := advanceAllIn(ctx, tx, some, wait)
			if err != nil {
				return nil, err
			}
			all = append(all, done...)
		}
		return all, nil
	})
	return all, Held(err)
}

// UntilUnlocked moves an email again while another transaction has it locked, for as long as
// somebody waits who asked for it. Between two tries it holds no connection.
func UntilUnlocked(ctx context.Context, move func(context.Context, Transition) (Advanced, error), t Transition) (Advanced, error) {
	for end := time.Now().Add(LockWait); ; {
		moved, err := move(ctx, t)
		switch {
		case err != nil || !moved.Locked:
			return moved, err
		case time.Now().After(end):
			return Advanced{}, ErrAggregateBusy
		}
		select {
		case <-time.After(LockWait / 16):
		case <-ctx.Done():
			return Advanced{}, context.Cause(ctx)
		}
	}
}

// Held converts a lock timeout to the error for an email.
func Held(err error) error {
	if pg.IsLockTimeout(err) && !errors.Is(err, pg.ErrBusy) {
		return errors.Join(ErrAggregateBusy, err)
	}
	return err
}
