package pg

import (
	"context"
	"errors"
	"time"

	"github.com/jmoiron/sqlx"
)

// InBoundedTx runs do in one transaction, which waits for the locks of other transactions as long as Bounded permits.
// It repeats the transaction after a serialization failure or deadlock.
func InBoundedTx[R any](ctx context.Context, db *DB, row HeldRow, do func(tx *sqlx.Tx, wait time.Duration) ([]R, error)) ([]R, error) {
	return Bounded(ctx, db, row, func(wait time.Duration) (done []R, err error) {
		err = db.InTx(ctx, func(tx *sqlx.Tx) error {
			if _, err := tx.ExecContext(ctx, BoundWaitSQL, LockTimeout(wait)); err != nil {
				return Translate(err)
			}
			done, err = do(tx, wait)
			return err
		})
		return done, err
	})
}

// ChangeBounded runs one statement in a bounded transaction and returns how many rows it changed. If a row stays
// locked, it returns ErrBusy.
func (db *DB) ChangeBounded(ctx context.Context, row HeldRow, statement string, args ...any) (int64, error) {
	changed, err := InBoundedTx(ctx, db, row, func(tx *sqlx.Tx, _ time.Duration) ([]int64, error) {
		result, err := tx.ExecContext(ctx, statement, args...)
		if err != nil {
			return nil, Translate(err)
		}
		n, err := result.RowsAffected()
		return []int64{n}, err
	})
	if err != nil {
		return 0, Held(err)
	}
	return changed[0], nil
}

// Held converts a lock timeout to ErrBusy.
func Held(err error) error {
	if IsLockTimeout(err) && !errors.Is(err, ErrBusy) {
		return errors.Join(ErrBusy, err)
	}
	return err
}
