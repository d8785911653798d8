// Package encryption lists what is encrypted in the database and in files, and replaces it when the keys are rotated.
package encryption

import (
	"email-gateway/shared/store/internal/pg"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct{ db *pg.DB }

// New makes a Store on connections.
func New(db *pg.DB) *Store { return &Store{db: db} }
