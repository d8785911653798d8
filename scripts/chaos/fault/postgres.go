package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"email-gateway/scripts/chaos/stage"
	"email-gateway/shared/service"
)

// disconnect ends every session of the database at once, wherever it is.
func disconnect(s *stage.Stage, _ string, _ *rand.Rand) Fault {
	return hooks{begin: func(ctx context.Context) error {
		const statement = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`
		if _, err := s.Database.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("disconnect everybody: %w", err)
		}
		return nil
	}}
}

// A migration by hand waits for its lock for a moment and tries again later: a statement
// that waits for ACCESS EXCLUSIVE holds up all that come after it. A transaction of a
// program that is frozen, or cut off, keeps its own lock until Postgres ends it, which is
// after 60 s.
const (
	lockPatience = 90 * time.Second
	lockPause    = time.Second
	lockLeast    = time.Second // it is held, however late it was had
)

// takeLock returns the transaction that holds the outbox.
func takeLock(ctx context.Context, s *stage.Stage) (*sql.Tx, error) {
	tx, err := s.Database.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, "SET LOCAL lock_timeout = '2s'; LOCK TABLE email_outbox IN ACCESS EXCLUSIVE MODE"); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx, nil
}

// lockTable is a migration that somebody runs by hand in the middle of the day.
func lockTable(s *stage.Stage, _ string, _ *rand.Rand) Fault {
	var tx *sql.Tx
	return hooks{
		begin: func(ctx context.Context) (err error) {
			trying, cancel := context.WithTimeout(ctx, lockPatience)
			defer cancel()
			for {
				if tx, err = takeLock(trying, s); err == nil {
					return service.Pause(ctx, lockLeast)
				}
				if service.Pause(trying, lockPause) != nil {
					return fmt.Errorf("lock the outbox: %w", err)
				}
			}
		},
		end: func(context.Context) error {
			if tx == nil {
				return nil
			}
			if err := tx.Rollback(); !errors.Is(err, sql.ErrTxDone) {
				return err
			}
			return nil
		},
	}
}

// readOnly is a failover in which the programs talk to a standby for a while.
func readOnly(s *stage.Stage, _ string, _ *rand.Rand) Fault {
	set := func(value string) func(context.Context) error {
		return func(ctx context.Context) error {
			for _, statement := range []string{"ALTER SYSTEM SET default_transaction_read_only = " + value, "SELECT pg_reload_conf()"} {
				if _, err := s.Database.ExecContext(ctx, statement); err != nil {
					return fmt.Errorf("make the database read-only %s: %w", value, err)
				}
			}
			return nil
		}
	}
	return hooks{begin: set("on"), end: set("off")}
}
