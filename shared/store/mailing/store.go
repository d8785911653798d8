// Package mailing holds the statements of mailings: the upload of their lines, the expansion into emails, the controls that
// pause, resume, cancel and repeat them, and their counts.
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
	// expanding has the companies whose mailings have met a locked recipient a moment ago.
	expanding *pg.Aside[uuid.UUID]
}

// New makes a Store on connections.
func New(db *pg.DB, keys *idempotency.Store) *Store {
	return &Store{db: db, keys: keys, expanding: pg.NewAside[uuid.UUID]()}
}
