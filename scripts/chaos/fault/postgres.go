package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/shared/service"
)

// disconnect terminates all sessions of the database.
func disconnect(c *cluster.Cluster, _ string, _ *rand.Rand) Fault {
	return hooks{begin: func(ctx context.Context) error {
		const statement = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`
		if _, err := c.Database.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("terminate sessions: %w", err)
		}
		return nil
	}}
}

// A manual migration waits for its lock for a short time and retries later: a statement that waits
// for ACCESS EXCLUSIVE blocks all later ones. A transaction of a frozen or disconnected program
// keeps its lock until Postgres aborts it after 60 s.
const (
	lockTimeout = 90 * time.Second
	lockPause   = time.Second
	lockMinimum = time.Second // minimum time that the lock is held
)

// takeLock returns a transaction that has locked the outbox.
func takeLock(ctx context.Context, c *cluster.Cluster) (*sql.Tx, error) {
	tx, err := c.Database.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, "SET LOCAL lock_timeout = '2s'; LOCK TABLE email_outbox IN ACCESS EXCLUSIVE MODE"); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx, nil
}

// lockTable acts like a manual migration during operation.
func lockTable(c *cluster.Cluster, _ string, _ *rand.Rand) Fault {
	var tx *sql.Tx
	return hooks{
		begin: func(ctx context.Context) (err error) {
			trying, cancel := context.WithTimeout(ctx, lockTimeout)
			defer cancel()
			for {
				if tx, err = takeLock(trying, c); err == nil {
					return service.Pause(ctx, lockMinimum)
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

// readOnly acts like a failover in which the programs are connected to a standby for a while.
func readOnly(c *cluster.Cluster, _ string, _ *rand.Rand) Fault {
	set := func(value string) func(context.Context) error {
		return func(ctx context.Context) error {
			for _, statement := range []string{"ALTER SYSTEM SET default_transaction_read_only = " + value, "SELECT pg_reload_conf()"} {
				if _, err := c.Database.ExecContext(ctx, statement); err != nil {
					return fmt.Errorf("make the database read-only %s: %w", value, err)
				}
			}
			return nil
		}
	}
	return hooks{begin: set("on"), end: set("off")}
}
