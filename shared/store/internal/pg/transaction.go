package pg

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

// Write runs a statement that commits by itself and reports whether it may have been
// applied. args are its parameters, at least one.
//
// When a connection breaks, database/sql runs the statement once more on another one.
// That is useful (after a restart of Postgres all idle connections are broken), so
// a statement must be idempotent. But only
// the last run's error is returned: a statement interrupted after its commit, followed by a
// refused connection, would look like a database that was never reached.
func Write(run func(args []any) error, args ...any) error {
	_, err := WriteCounted(run, args...)
	return err
}

// WriteCounted is write for callers that need to know how often the statement was run.
func WriteCounted(run func(args []any) error, args ...any) (runs int, err error) {
	args[0] = counted{args[0], &runs}
	err = run(args)
	var refused *pq.Error
	switch {
	case err == nil:
		return runs, nil
	case runs == 0 && (!errors.As(err, &refused) || isCutOff(err)):
		return runs, errors.Join(ErrUnavailable, err) // nothing was sent: there was no connection
	case runs > 0 && neverBegan(err), runs > 1 && isPassing(err):
		return runs, errors.Join(ErrUnknownOutcome, err) // the outcome of an earlier run
	}
	return runs, WriteError(err)
}

// counted is a parameter that counts how often its statement is run: database/sql
// reads its value each time.
type counted struct {
	value any
	runs  *int
}

func (c counted) Value() (driver.Value, error) {
	*c.runs++
	return driver.DefaultParameterConverter.ConvertValue(c.value)
}

// Exec is write for a statement without rows.
func (db *DB) Exec(ctx context.Context, statement string, args ...any) (result sql.Result, err error) {
	err = Write(func(args []any) error {
		result, err = db.ExecContext(ctx, statement, args...)
		return err
	}, args...)
	return result, err
}

// InTx runs do in one READ COMMITTED transaction and commits it if do returned
// nil. COMMIT's own error is returned like any other; it is the only one after which the
// transaction may be committed or not.
func (db *DB) InTx(ctx context.Context, do func(tx *sqlx.Tx) error) error {
	tx, err := db.BeginTxx(ctx, nil)
	var refused *pq.Error
	switch {
	case err == nil:
		return carryOut(tx, do)
	case ctx.Err() == nil && !errors.As(err, &refused):
		return fmt.Errorf("begin: %w", errors.Join(ErrUnavailable, err)) // nothing was sent
	}
	return fmt.Errorf("begin: %w", Translate(err))
}

// SteadyTx is a transaction and the connection that it is on, for a COPY.
type SteadyTx struct {
	*sqlx.Tx
	Conn *sqlx.Conn
}

// InSteadyTx is InTx for a transaction with a COPY. Once begun, the end of ctx does not
// end it: database/sql would then send ROLLBACK into the middle of the COPY, from
// another goroutine. So do looks at ctx itself, and leaves no COPY open.
func (db *DB) InSteadyTx(ctx context.Context, do func(tx SteadyTx) error) error {
	steady, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	unlink := context.AfterFunc(ctx, cancel)
	tx, err := db.beginSteady(steady)
	if tx.Conn != nil {
		// After the end of the transaction; closed already where the connection broke.
		defer func() { _ = tx.Conn.Close() }()
	}
	if !unlink() {
		err = errors.Join(ctx.Err(), err)
		if tx.Tx != nil {
			_ = tx.Rollback()
		}
	}
	if err != nil {
		return fmt.Errorf("begin: %w", Translate(err))
	}
	return carryOut(tx.Tx, func(*sqlx.Tx) error { return do(tx) })
}

// beginSteady begins where nothing has been sent yet on a connection that still lives.
// After a restart of Postgres all idle ones are dead, which each of them finds out when
// it is used, and leaves the pool; database/sql goes on to the next only where it picks
// the connection itself.
func (db *DB) beginSteady(ctx context.Context) (SteadyTx, error) {
	for left := db.Stats().MaxOpenConnections; ; left-- {
		conn, err := db.Connx(ctx)
		if err != nil {
			return SteadyTx{}, err
		}
		tx, err := conn.BeginTxx(ctx, nil)
		if err == nil {
			return SteadyTx{Tx: tx, Conn: conn}, nil
		}
		_ = conn.Close()
		if left == 0 || !errors.Is(err, driver.ErrBadConn) {
			return SteadyTx{}, err
		}
	}
}

func carryOut(tx *sqlx.Tx, do func(tx *sqlx.Tx) error) (err error) {
	defer func() {
		if err != nil {
			// If the rollback fails, the connection is broken, and nothing is left of the transaction either.
			_ = tx.Rollback()
		}
	}()
	if err := do(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", WriteError(err))
	}
	return nil
}
