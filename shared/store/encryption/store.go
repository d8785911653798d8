// Package encryption holds the statements of a rotation of keys: it lists the encrypted CPFs and CNPJs and replaces them, and
// lists the encrypted files of mailings.
package encryption

import (
	"email-gateway/shared/store/internal/pg"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct{ db *pg.DB }

// New makes a Store on connections.
func New(db *pg.DB) *Store { return &Store{db: db} }
