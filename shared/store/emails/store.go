// Package emails reads emails and their timelines, and holds the changes of one email by requests and by operators.
package emails

import (
	"email-gateway/shared/store/internal/pg"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct{ db *pg.DB }

// New returns a Store on connections.
func New(db *pg.DB) *Store { return &Store{db: db} }
