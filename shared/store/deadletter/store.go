// Package deadletter holds the statements of dead letters: what was given up, how it is tried again or discarded, one by one or
// many at a time (a replay).
package deadletter

import (
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	db       *pg.DB
	emails   *outbox.Store
	mailings *mailing.Store
}

// New makes a Store on connections.
func New(db *pg.DB, emails *outbox.Store, mailings *mailing.Store) *Store {
	return &Store{db: db, emails: emails, mailings: mailings}
}
