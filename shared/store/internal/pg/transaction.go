package pg

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

// Write runs a statement in autocommit mode, and its error says whether the statement may have been applied. args are
// its parameters, at least one.
//
// If a connection breaks, database/sql runs the statement again on another one. That is useful, because a restart of
// Postgres breaks all idle connections, but the statement must be idempotent. database/sql returns only the error of
// the last run: a statement that was interrupted after its commit, followed by a refused connection, would look like a
// database that was never reached.
func Write(run func(args []any) error, args ...any) error {
	_, err := WriteCounted(run, args...)
	return err
}

// WriteCounted is Write for callers that need to know how often the statement was run.
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

// counted is a parameter that counts the runs of its statement: database/sql reads its value in each run.
type counted struct {
	value any
	runs  *int
}

func (c counted) Value() (driver.Value, error) {
	*c.runs++
	return driver.DefaultParameterConverter.ConvertValue(c.value)
}

// Exec is Write for a statement without rows.
func (db *DB) Exec(ctx context.Context, statement string, args ...any) (result sql.Result, err error) {
	err = Write(func(args []any) error {
		result, err = db.ExecContext(ctx, statement, args...)
		return err
	}, args...)
	return result, err
}

// InTx runs do in one READ COMMITTED transaction and commits it if do returns nil. Only after an error of COMMIT itself
// may the transaction have been committed.
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

// InLongTx is InTx for a transaction whose statements may each last for limit, which is longer than Options.StatementTimeout. It
// makes a connection for the transaction: Postgres, the driver and the dialer each end a longer statement of the pool.
func (db *DB) InLongTx(ctx context.Context, limit time.Duration, do func(tx *sqlx.Tx) error) error {
	own, err := Open(ctx, db.url, Options{MaxConns: 1, StatementTimeout: limit, Pooled: db.options.Pooled})
	if err != nil {
		return err
	}
	defer own.Close()
	return own.InTx(ctx, func(tx *sqlx.Tx) error {
		// The URL's parameter, or behind a pooler the role's setting, would be in effect otherwise.
		if _, err := tx.ExecContext(ctx, longTxSQL, strconv.FormatInt(limit.Milliseconds(), 10)); err != nil {
			return Translate(err)
		}
		if err := MayIdle(ctx, tx); err != nil {
			return err
		}
		return do(tx)
	})
}

// SteadyTx is a transaction and its connection, for a COPY.
type SteadyTx struct {
	*sqlx.Tx
	Conn *sqlx.Conn
}

// InSteadyTx is InTx for a transaction with a COPY. Once the transaction has begun, the end of ctx does not end it:
// database/sql would then send ROLLBACK from another goroutine into the middle of the COPY. So do must check ctx
// itself, and must leave no COPY open.
func (db *DB) InSteadyTx(ctx context.Context, do func(tx SteadyTx) error) error {
	steady, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	unlink := context.AfterFunc(ctx, cancel)
	tx, err := db.beginSteady(steady)
	if tx.Conn != nil {
		// The connection is closed after the transaction has ended; it may be closed already if it broke.
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

// beginSteady begins a transaction on the first connection that works. A restart of Postgres breaks all idle
// connections; each of them reports this at its next use and leaves the pool. database/sql tries the next connection
// only if it picks the connection itself.
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
			// If the rollback fails, the connection is broken, and Postgres has ended the transaction.
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
