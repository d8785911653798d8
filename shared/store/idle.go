package store

import (
	"context"

	"github.com/jmoiron/sqlx"
)

// idleTime is how long a transaction may wait for its program between two statements before
// Postgres ends it. A program that stands still lets go of its locks then. schema/roles.sql
// says the same of its roles, where a PgBouncer drops what a connection asks for.
const idleTime = "5000"

// mayIdleSQL gives the transaction a minute instead. It is for those that lock nothing which
// others wait for: an upload, whose lines come as fast as its client sends them, and rounds
// that move emails on other connections meanwhile.
const mayIdleSQL = `SET LOCAL idle_in_transaction_session_timeout = '60s'`

func mayIdle(ctx context.Context, tx *sqlx.Tx) error {
	_, err := tx.ExecContext(ctx, mayIdleSQL)
	return translate(err)
}
