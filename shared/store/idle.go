package store

import (
	"context"

	"github.com/jmoiron/sqlx"
)

// mayIdleSQL gives the transaction a minute between two statements, instead of the 5 s after which Postgres ends an idle
// transaction of the roles in schema/roles.sql, so that a program that does not run releases its locks. It is for those that lock nothing which
// others wait for: an upload, whose lines come as fast as its client sends them, and rounds
// that move emails on other connections meanwhile.
const mayIdleSQL = `SET LOCAL idle_in_transaction_session_timeout = '60s'`

func mayIdle(ctx context.Context, tx *sqlx.Tx) error {
	_, err := tx.ExecContext(ctx, mayIdleSQL)
	return translate(err)
}
