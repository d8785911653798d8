// Package dispatch holds the dispatcher's statements: which lanes have due rows, taking and releasing them, the email that tries
// a provider behind an open circuit breaker, what was lost on the way, and how much waits.
package dispatch

import (
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/internal/pg"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	db   *pg.DB
	gate *breaker.Store
}

// New makes a Store on connections.
func New(db *pg.DB, gate *breaker.Store) *Store { return &Store{db: db, gate: gate} }
