package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
)

// ErrUnreplicated: no synchronous standby has confirmed a commit. If the wait of a commit is cancelled, Postgres keeps
// the commit and reports success with a warning; a promoted standby may lack it.
var ErrUnreplicated = errors.New("committed on the primary, but not confirmed by a synchronous standby")

// confirmTime is how long Confirm waits for a standby: less than the 2 s of a readiness check.
const confirmTime = 1500 * time.Millisecond

// warningTime is how much longer Confirm waits for the warning of the commit whose wait it has cancelled.
const warningTime = 250 * time.Millisecond

// ConfirmedColumn is a column that makes a statement return only when a synchronous standby has everything that the
// statement sees. A commit that no standby confirmed is visible nevertheless, if its connection was cancelled or ended
// during the wait, or Postgres was restarted. The column writes an unused message to the WAL, which makes the
// statement's own commit wait; standbys confirm commits in order. Without synchronous standbys it writes nothing.
const ConfirmedColumn = `CASE WHEN current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off', 'local')
            THEN pg_logical_emit_message(true, 'email-gateway', '') END`

// confirmSQL reads no table and locks nothing. Without a synchronous standby it writes nothing, so it checks
// transaction_read_only itself: that is on on a standby, and where default_transaction_read_only is on, which managed servers set
// when their disk is nearly full.
const confirmSQL = `
DO $$
BEGIN
    IF current_setting('transaction_read_only') = 'on' THEN
        RAISE read_only_sql_transaction USING MESSAGE = 'transactions are read-only';
    END IF;
    PERFORM ` + ConfirmedColumn + `;
END
$$`

// Confirm returns nil if Postgres answers, accepts writes and, where synchronous standbys are configured, one of them
// has everything that was committed and visible before the call. It returns ErrUnreplicated if a standby does not
// confirm that, or if the call times out within 30 s of an unconfirmed commit of this process. It takes less than 2 s.
// An outage is always ErrUnavailable, never ErrUnknownOutcome.
func (db *DB) Confirm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	err := db.confirm(ctx)
	switch {
	case err == nil:
		db.connector.doubted.Store(0)
		return nil
	case errors.Is(err, ErrUnreplicated), ctx.Err() != nil: // what it did not confirm is empty, or Postgres did not answer at all
		err = errors.Join(ErrUnavailable, err)
	default:
		err = Translate(err)
	}
	return fmt.Errorf("confirm commits: %w", db.ExplainTimeout(ctx, err))
}

// confirm runs the statement. lib/pq opens a connection to cancel a statement and returns when Postgres has answered,
// which may take longer than the caller waits.
func (db *DB) confirm(ctx context.Context) error {
	confirmed := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(ctx, confirmSQL) // Exec reads up to the warning; a cancelled query does not
		confirmed <- err
	}()
	select {
	case err := <-confirmed:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-confirmed:
		return err
	case <-time.After(warningTime):
		return ctx.Err()
	}
}

// Unreplicated is how many commits of this process ended with ErrUnreplicated.
func (db *DB) Unreplicated() int64 { return db.connector.unreplicated.Load() }

// pooledTries is how often two connections are compared. PgBouncer assigns the most recently used server connection by
// default, so the first comparison detects it unless others use the pool.
const pooledTries = 20

const backendSQL = `SELECT pg_backend_pid()`

// Pooled reports whether a pooler between this program and Postgres assigns a server connection to each transaction
// instead of each client connection. It detects this if two open connections ran on the same server connection, or one
// connection on several. It needs MaxConns ≥ 2.
func (db *DB) Pooled(ctx context.Context) (bool, error) {
	owners := map[int]int{} // backend to the index of the connection that ran on it
	var conns [2]*sqlx.Conn
	if db.Stats().MaxOpenConnections < len(conns) {
		return false, errors.New("look for a pooler: two connections are required")
	}
	for i := range conns {
		conn, err := db.Connx(ctx)
		if err != nil {
			return false, fmt.Errorf("look for a pooler: %w", Translate(err))
		}
		defer conn.Close() //nolint:errcheck // nothing was changed
		conns[i] = conn
	}
	for range pooledTries {
		for i, conn := range conns {
			var backend int
			if err := conn.GetContext(ctx, &backend, backendSQL); err != nil {
				return false, fmt.Errorf("look for a pooler: %w", Translate(err))
			}
			if owner, seen := owners[backend]; seen && owner != i {
				return true, nil
			}
			owners[backend] = i
		}
	}
	return len(owners) > len(conns), nil
}

// ExistsConfirmed reports whether the row of the id was committed, and confirmed by a synchronous standby where there
// is one. The statement returns the columns found, and confirmed from ConfirmedColumn.
func (db *DB) ExistsConfirmed(ctx context.Context, statement string, id uuid.UUID) (bool, error) {
	var row struct{ Found, Confirmed bool }
	err := db.GetContext(ctx, &row, statement, id)
	return row.Found && err == nil, Translate(err)
}
