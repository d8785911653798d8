// Package lane holds the statements of dispatch lanes, in which the rows of the outbox wait: operators hold and release them, and
// a program that has written rows wakes the dispatchers, which look for them in the lanes that are named.
package lane

import (
	"email-gateway/shared/store/internal/pg"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct{ db *pg.DB }

// New makes a Store on connections.
func New(db *pg.DB) *Store { return &Store{db: db} }
