// Package encryption contains the SQL statements of a key rotation: it lists and replaces the encrypted CPFs and CNPJs, and
// lists the encrypted files of mailings.
package encryption

import (
	"email-gateway/shared/store/internal/pg"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct{ db *pg.DB }

// New returns a Store that uses the connections of db.
func New(db *pg.DB) *Store { return &Store{db: db} }
