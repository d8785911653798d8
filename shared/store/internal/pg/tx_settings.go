package pg

import (
	"context"
	"strconv"
	"time"

	"github.com/jmoiron/sqlx"
)

// mayIdleSQL lets the transaction be idle for a minute between two statements. For the roles in schema/roles.sql
// Postgres ends a transaction after 5 s of idle time, so that a program that does not run releases its locks. It is for
// transactions without locks that others wait for: an upload, which parses and checks the lines of the stored file between
// its statements, and rounds that move emails on other connections meanwhile. They may take minutes, so they also have no
// transaction_timeout, which an administrator may set in Postgres 17 and later.
const mayIdleSQL = `SET LOCAL idle_in_transaction_session_timeout = '60s';
SELECT set_config('transaction_timeout', '0', true) WHERE current_setting('transaction_timeout', true) IS NOT NULL`

func MayIdle(ctx context.Context, tx *sqlx.Tx) error {
	_, err := tx.ExecContext(ctx, mayIdleSQL)
	return Translate(err)
}

// longTxSQL sets how long each statement of a transaction may last.
const longTxSQL = `SELECT set_config('statement_timeout', $1, true)`

// BoundWaitSQL sets how long the statements of a transaction wait for the locks of other transactions. Its parameter is
// a LockTimeout.
const BoundWaitSQL = `SELECT set_config('lock_timeout', $1, true)`

// LockTimeout returns a value for Postgres's setting lock_timeout.
func LockTimeout(wait time.Duration) string { return strconv.FormatInt(wait.Milliseconds(), 10) }

// AlongKeySQL makes the planner read tables along an index for the rest of the transaction. It is for statements that read the
// next rows of a table batch by batch. The planner's statistics may not include a million rows that were just inserted: it
// would then read and sort all rows for each batch, or read all of another table for a hash or merge join instead of
// looking up the rows that belong to the batch.
const AlongKeySQL = `SET LOCAL enable_bitmapscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_material = off`
