package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// migrationLock allows one process to migrate at a time. It is a lock on a separate table, in a
// transaction that stays open during the migrations: every role of the server could take an
// advisory lock, but only the table's owner may take this one.
//
// The transaction has no snapshot, so CREATE INDEX CONCURRENTLY does not wait for it. It ends with
// its connection, so a process that dies leaves no lock.
type migrationLock struct{ tx *sql.Tx }

// Postgres's codes for a lock timeout, also with NOWAIT, and for a deadlock.
const (
	lockNotAvailable = "55P03"
	deadlockDetected = "40P01"
)

// makeLockSQL runs before the first migration. Two processes may run it concurrently; the second
// one gets an error because the name exists.
const makeLockSQL = `
DO $$
BEGIN
    CREATE TABLE IF NOT EXISTS goose_migration_lock ();
EXCEPTION WHEN unique_violation OR duplicate_table OR duplicate_object THEN
    NULL;
END
$$`

// takeLockSQL does not wait: a waiting statement has a snapshot, and the running migration may create an index
// CONCURRENTLY, which waits for snapshots. The weakest lock that conflicts with itself allows a backup to read the
// table. After a minute without an answer of this machine Postgres ends the session: others wait for the lock without a
// limit.
const takeLockSQL = `
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = 0;
SET LOCAL tcp_keepalives_idle = 30;
SET LOCAL tcp_keepalives_interval = 10;
SET LOCAL tcp_keepalives_count = 3;
LOCK TABLE goose_migration_lock IN SHARE UPDATE EXCLUSIVE MODE NOWAIT`

const lockInterval = 500 * time.Millisecond

// waitingSQL makes Postgres send a warning, which command migrate prints.
const waitingSQL = `DO $$ BEGIN RAISE WARNING 'another process migrates this database: waiting until it has ended'; END $$`

// Lock waits until no other process migrates, and removes what an interrupted one has left.
func (l *migrationLock) Lock(ctx context.Context, db *sql.DB) error {
	if err := l.acquire(ctx, db); err != nil {
		return err
	}
	return l.prepare(ctx, db)
}

// acquire waits as long as ctx permits: an index of a large table takes hours.
func (l *migrationLock) acquire(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, makeLockSQL); err != nil {
		return fmt.Errorf("make migration lock: %w", err)
	}
	for waits := false; ; waits = true {
		taken, err := l.take(ctx, db)
		if taken || err != nil {
			return err
		}
		if !waits {
			if _, err := db.ExecContext(ctx, waitingSQL); err != nil {
				return fmt.Errorf("wait for the migration of another process: %w", err)
			}
		}
		select {
		case <-time.After(lockInterval):
		case <-ctx.Done():
			return fmt.Errorf("wait for the migration of another process: %w", ctx.Err())
		}
	}
}

// prepare makes an interrupted migration repeatable, and releases the lock if that fails.
func (l *migrationLock) prepare(ctx context.Context, db *sql.DB) error {
	if err := undoUnfinished(ctx, db); err != nil {
		return errors.Join(fmt.Errorf("prepare migrations: %w", err), l.tx.Rollback())
	}
	return nil
}

// take makes one attempt; false: another process has the lock.
func (l *migrationLock) take(ctx context.Context, db *sql.DB) (taken bool, err error) {
	// Without ctx: a cancelled migration must be rolled back before the lock is released.
	tx, err := db.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return false, fmt.Errorf("begin migration lock: %w", err)
	}
	if _, err = tx.ExecContext(ctx, takeLockSQL); err == nil {
		l.tx = tx
		return true, nil
	}
	var refused interface{ SQLState() string }
	if errors.As(err, &refused) && refused.SQLState() == lockNotAvailable {
		return false, tx.Rollback()
	}
	return false, errors.Join(fmt.Errorf("take migration lock: %w", err), tx.Rollback())
}

// Unlock fails if the lock was lost meanwhile: another process may have migrated too.
func (l *migrationLock) Unlock(context.Context, *sql.DB) error {
	if err := l.tx.Commit(); err != nil {
		return fmt.Errorf("release migration lock: %w", err)
	}
	return nil
}
