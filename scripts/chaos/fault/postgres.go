package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"

	"email-gateway/scripts/chaos/stage"
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

// lockTable is a migration that somebody runs by hand in the middle of the day.
func lockTable(s *stage.Stage, _ string, _ *rand.Rand) Fault {
	var tx *sql.Tx
	return hooks{
		begin: func(ctx context.Context) (err error) {
			if tx, err = s.Database.BeginTx(context.WithoutCancel(ctx), nil); err != nil {
				return fmt.Errorf("lock the outbox: %w", err)
			}
			if _, err := tx.ExecContext(ctx, "SET LOCAL lock_timeout = '5s'; LOCK TABLE email_outbox IN ACCESS EXCLUSIVE MODE"); err != nil {
				err = errors.Join(err, tx.Rollback())
				tx = nil
				return fmt.Errorf("lock the outbox: %w", err)
			}
			return nil
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
