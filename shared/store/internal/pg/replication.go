package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
)

// ErrUnreplicated: a commit waits for a synchronous standby, and none confirms it. When the wait of a commit is
// cancelled, Postgres keeps what was committed and reports success with a warning; a promoted standby may
// not have it.
var ErrUnreplicated = errors.New("committed on the primary, and no synchronous standby confirms it")

// confirmTime is how long Confirm waits for a standby: less than the 2 s of a readiness check.
const confirmTime = 1500 * time.Millisecond

// warningTime is how much longer Confirm waits for the warning of the commit that it has cancelled.
const warningTime = 250 * time.Millisecond

// ConfirmedColumn is a column of a statement that returns only when a synchronous standby has everything that the
// statement sees. A row whose commit no standby confirmed is visible nevertheless: its connection was cancelled or
// ended while it waited, or Postgres was restarted. The column writes an unused message to the WAL
// and so makes the statement's own commit wait; standbys confirm commits in their order. Without synchronous
// standbys it writes nothing.
const ConfirmedColumn = `CASE WHEN current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off', 'local')
            THEN pg_logical_emit_message(true, 'email-gateway', '') END`

// confirmSQL reads no table and locks nothing.
const confirmSQL = `SELECT ` + ConfirmedColumn

// Confirm returns nil when Postgres answers, and a synchronous standby, where there is one, has all that
// was visible before. ErrUnreplicated: no standby confirms it, or Postgres did not answer in time and no standby confirmed a
// commit of the last 30 s. It takes less than 2 s.
func (db *DB) Confirm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	err := Translate(db.confirm(ctx))
	switch {
	case err == nil:
		db.connector.doubted.Store(0)
		return nil
	case ctx.Err() != nil && !IsOutage(err):
		err = errors.Join(ErrUnavailable, err) // Postgres did not answer at all
	}
	return fmt.Errorf("confirm commits: %w", db.ExplainTimeout(ctx, err))
}

// confirm runs the statement. lib/pq opens a connection to cancel a statement, and returns when Postgres has answered:
// that may take longer than the caller waits.
func (db *DB) confirm(ctx context.Context) error {
	confirmed := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(ctx, confirmSQL) // it reads on to the warning, which a query that is cancelled does not
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

// pooledTries is how often two connections are compared. PgBouncer assigns the most recently used
// connection by default, so the first comparison finds it unless others use the pool.
const pooledTries = 20

const backendSQL = `SELECT pg_backend_pid()`

// Pooled reports whether a pooler between this program and Postgres assigns a server connection to each transaction
// instead of each connection: two connections that are open at the same time were observed on the same server connection,
// or one on several. It needs MaxConns ≥ 2.
func (db *DB) Pooled(ctx context.Context) (bool, error) {
	owners := map[int]int{} // backends, by the connection that was seen on them
	var conns [2]*sqlx.Conn
	if db.Stats().MaxOpenConnections < len(conns) {
		return false, errors.New("look for a pooler: it takes two connections")
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

// ExistsConfirmed reports whether the row of the id was committed, on a synchronous standby too where there is one. The
// statement has the columns found, and confirmed from ConfirmedColumn.
func (db *DB) ExistsConfirmed(ctx context.Context, statement string, id uuid.UUID) (bool, error) {
	var row struct{ Found, Confirmed bool }
	err := db.GetContext(ctx, &row, statement, id)
	return row.Found && err == nil, Translate(err)
}
