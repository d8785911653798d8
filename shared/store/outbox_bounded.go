package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
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
			done, err := advance(some, func(rows any, columns []any) error {
				return translate(tx.SelectContext(ctx, rows, advanceSQL, columns...))
			})
			if err != nil {
				return nil, err
			}
			all = append(all, done...)
		}
		return all, nil
	})
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
	var refused *pq.Error
	if errors.As(err, &refused) && refused.Code == pqerror.LockNotAvailable {
		err = errors.Join(ErrAggregateBusy, err)
	}
	return results, err
}
