// Package deadletter holds the statements of dead letters. They list, retry and discard them, one at a time or all that match a
// filter (a replay).
package deadletter

import (
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/mailing"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	db       *pg.DB
	mailings *mailing.Store
}

// New returns a Store on connections.
func New(db *pg.DB, mailings *mailing.Store) *Store {
	return &Store{db: db, mailings: mailings}
}
