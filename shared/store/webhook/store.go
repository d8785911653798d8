package webhook

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/event"
	"email-gateway/shared/store/internal/pg"
)

// Store manages the endpoints of companies, and their deliveries and replays. It is safe for concurrent use.
type Store struct {
	db   *pg.DB
	feed *event.Store
}

// New returns a Store that uses the connections of db.
func New(db *pg.DB) *Store { return &Store{db: db, feed: event.New(db)} }

var errNotFound = pg.ErrNotFound

func isNoRows(err error) bool { return errors.Is(err, sql.ErrNoRows) || errors.Is(err, errNotFound) }

// exec returns the number of affected rows.
func (s *Store) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	result, err := s.db.Exec(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// write runs a statement that writes, and scans its rows into into. runs is how often it ran: more than once if the
// connection broke.
func (s *Store) write(ctx context.Context, into any, statement string, args ...any) (runs int, err error) {
	return pg.WriteCounted(func(args []any) error { return s.db.SelectContext(ctx, into, statement, args...) }, args...)
}

// one is exec for a statement that must find its row.
func (s *Store) one(ctx context.Context, what, statement string, args ...any) error {
	n, err := s.exec(ctx, statement, args...)
	return oneRow(what, n, err)
}

// inTx runs do in a transaction with a lock timeout: an endpoint whose row another transaction has locked delays only
// itself, for 2 s at most.
func inTx(ctx context.Context, db *pg.DB, do func(tx *sqlx.Tx) error) error {
	return db.InTx(ctx, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, lockTimeoutSQL); err != nil {
			return err
		}
		return pg.Translate(do(tx))
	})
}

// lockTimeoutSQL applies until the end of the transaction.
const lockTimeoutSQL = `SET LOCAL lock_timeout = '2s'`
