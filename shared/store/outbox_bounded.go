package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
)

// AdvanceAll applies transitions of different emails in one commit, for somebody who waits
// for the answer, and returns what became of each in their order. A program's open
// transaction may hold an email for as long as it likes: after 4 s that is
// ErrAggregateBusy, and nothing was changed.
func (s *Store) AdvanceAll(ctx context.Context, ts []Transition) ([]Advanced, error) {
	encoded := make([]Transition, len(ts))
	for i, t := range ts {
		var err error
		if encoded[i], err = t.encoded(); err != nil {
			return nil, err
		}
	}
	return boundedly(ctx, s, func(tx *sqlx.Tx) (all []Advanced, err error) {
		for some := range slices.Chunk(encoded, groupRows) {
			done, err := advanceAllIn(ctx, tx, some)
			if err != nil {
				return nil, err
			}
			all = append(all, done...)
		}
		return all, nil
	})
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

// boundedly does something in one transaction that waits at most aggregateWait for a lock
// of another one, and repeats it when it lost a race.
func boundedly[R any](ctx context.Context, s *Store, do func(tx *sqlx.Tx) ([]R, error)) ([]R, error) {
	results, err := repeat(func() (done []R, err error) {
		err = s.inTx(ctx, func(tx *sqlx.Tx) error {
			if _, err := tx.ExecContext(ctx, boundWaitSQL, fmt.Sprint(aggregateWait.Milliseconds())); err != nil {
				return translate(err)
			}
			done, err = do(tx)
			return err
		})
		return done, err
	})
	if isLockTimeout(err) {
		err = errors.Join(ErrAggregateBusy, err)
	}
	return results, err
}
