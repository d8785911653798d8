package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// AdvanceAll applies transitions of different emails of a company in one commit, for somebody
// who waits for the answer, and returns what became of each in their order. A program's open
// transaction may hold an email for as long as it likes: after 4 s that is
// ErrAggregateBusy, or ErrBusy at once when others wait already, and nothing was changed.
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
	all, err := boundedly(ctx, s, pg.HeldRow{Company: company, Name: ts[0].ID.String()}, func(tx *sqlx.Tx, wait time.Duration) (all []Advanced, err error) {
		for some := range slices.Chunk(encoded, pg.GroupRows) {
			done, err := advanceAllIn(ctx, tx, some, wait)
			if err != nil {
				return nil, err
			}
			all = append(all, done...)
		}
		return all, nil
	})
	return all, heldEmail(err)
}

// untilUnlocked moves an email again while another transaction has it locked, for as long as
// somebody waits who asked for it. Between two tries it holds no connection.
func untilUnlocked(ctx context.Context, move func(context.Context, Transition) (Advanced, error), t Transition) (Advanced, error) {
	for end := time.Now().Add(aggregateWait); ; {
		moved, err := move(ctx, t)
		switch {
		case err != nil || !moved.Locked:
			return moved, err
		case time.Now().After(end):
			return Advanced{}, ErrAggregateBusy
		}
		select {
		case <-time.After(aggregateWait / 16):
		case <-ctx.Done():
			return Advanced{}, context.Cause(ctx)
		}
	}
}

// boundedly does something in one transaction that waits for the locks of other ones as long
// as bounded lets it, and repeats it when it lost a race.
func boundedly[R any](ctx context.Context, s *Store, row pg.HeldRow, do func(tx *sqlx.Tx, wait time.Duration) ([]R, error)) ([]R, error) {
	return pg.Bounded(ctx, s.db, row, func(wait time.Duration) (done []R, err error) {
		err = s.db.InTx(ctx, func(tx *sqlx.Tx) error {
			if _, err := tx.ExecContext(ctx, pg.BoundWaitSQL, pg.LockTimeout(wait)); err != nil {
				return pg.Translate(err)
			}
			done, err = do(tx, wait)
			return err
		})
		return done, err
	})
}

// changeBoundedly runs one statement boundedly and says how many rows it changed. A row that
// stays locked is ErrBusy.
func (s *Store) changeBoundedly(ctx context.Context, row pg.HeldRow, statement string, args ...any) (int64, error) {
	changed, err := boundedly(ctx, s, row, func(tx *sqlx.Tx, _ time.Duration) ([]int64, error) {
		result, err := tx.ExecContext(ctx, statement, args...)
		if err != nil {
			return nil, pg.Translate(err)
		}
		n, err := result.RowsAffected()
		return []int64{n}, err
	})
	if err != nil {
		return 0, held(err)
	}
	return changed[0], nil
}

// heldEmail says of a lock that lasted too long that it is an email's.
func heldEmail(err error) error {
	if pg.IsLockTimeout(err) && !errors.Is(err, pg.ErrBusy) {
		return errors.Join(ErrAggregateBusy, err)
	}
	return err
}

// held says of a lock that lasted too long that it is some row's.
func held(err error) error {
	if pg.IsLockTimeout(err) && !errors.Is(err, pg.ErrBusy) {
		return errors.Join(pg.ErrBusy, err)
	}
	return err
}
