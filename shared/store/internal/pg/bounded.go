package pg

import (
	"context"
	"errors"
	"time"

	"github.com/jmoiron/sqlx"
)

// Bounded runs do, which may need a row that another transaction holds and waits for it as long as its argument says.
// Most rows are free, so Bounded first runs do with a short wait. If that times out, the request waits for the lock
// until LockWait is over. At most lockWaitsOfEach requests of a company and lockWaits of all companies wait so; further
// ones get ErrBusy at once, joined with the error of a try. A request that gets no try within turnWait gets ErrBusy if
// requests of its company are blocked by locks, else ErrTriesOfCompany or ErrTries. do must write nothing if it fails;
// it is repeated after a serialization failure or deadlock.
func Bounded[R any](ctx context.Context, db *DB, row HeldRow, do func(wait time.Duration) ([]R, error)) ([]R, error) {
	w, end := db.waits, time.Now().Add(LockWait)
	tried, err := w.try(ctx, row)
	if err != nil {
		return nil, err
	}
	var cause error
	if tried {
		done, err := Repeat(func() ([]R, error) { return do(tryWait) })
		if !IsLockTimeout(err) {
			w.endTry(row)
			return done, err
		}
		w.meet(row.Company)
		cause = err
	}
	err = w.enter(row, cause)
	if tried {
		w.endTry(row)
	}
	if err != nil {
		return nil, err
	}
	defer w.leave(row)
	wait := max(time.Until(end), tryWait)
	return Repeat(func() ([]R, error) { return do(wait) })
}

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
		return 0, AsBusy(err)
	}
	return changed[0], nil
}

// AsBusy converts a lock timeout to ErrBusy.
func AsBusy(err error) error {
	if IsLockTimeout(err) && !errors.Is(err, ErrBusy) {
		return errors.Join(ErrBusy, err)
	}
	return err
}
