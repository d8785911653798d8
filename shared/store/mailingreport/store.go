// Package mailingreport reads the outcome of each line of a mailing's file: its entry, its email, or the reason why it has none.
package mailingreport

import (
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/mailing"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	db       *pg.DB
	mailings *mailing.Store
}

// New returns a Store that uses the connections of db.
func New(db *pg.DB, mailings *mailing.Store) *Store { return &Store{db: db, mailings: mailings} }
