// Package mailing contains the SQL statements of mailings: the upload of their lines, the expansion into emails, the
// controls that start, pause, resume, move, cancel and retry them, and their counts.
package mailing

import (
	"github.com/google/uuid"

	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/internal/pg"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	db   *pg.DB
	keys *idempotency.Store
	// expanding contains the companies whose mailings recently waited for a locked recipient.
	expanding *pg.LockedKeys[uuid.UUID]
}

// New returns a Store that uses the connections of db.
func New(db *pg.DB, keys *idempotency.Store) *Store {
	return &Store{db: db, keys: keys, expanding: pg.NewLockedKeys[uuid.UUID]()}
}
