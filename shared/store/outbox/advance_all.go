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

// AdvanceAll applies transitions of different emails of one company in one commit, and returns their results in order.
// The caller sorts them by id, as other transactions lock emails, so that two cannot deadlock. It is for requests whose client waits. A program's open transaction may hold an email for any length of time:
// AdvanceAll returns ErrAggregateBusy after LockWait (4 s), or pg.ErrBusy at once if too many other requests wait
// already. Nothing was changed then.
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

// UntilUnlocked calls move again while another transaction has the email locked. After LockWait it returns
// ErrAggregateBusy. It holds no connection between two calls.
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

// Held converts a lock timeout to ErrAggregateBusy.
func Held(err error) error {
	if pg.IsLockTimeout(err) && !errors.Is(err, pg.ErrBusy) {
		return errors.Join(ErrAggregateBusy, err)
	}
	return err
}
