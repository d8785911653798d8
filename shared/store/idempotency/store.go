// Package idempotency contains the SQL statements of idempotency keys: a client's key is committed together with the rows
// of its request and the response that a repeated request gets.
package idempotency

import (
	"email-gateway/shared/store/internal/pg"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct{ db *pg.DB }

// New returns a Store that uses the connections of db.
func New(db *pg.DB) *Store { return &Store{db: db} }
