// Package feedback holds the statements that record and apply the provider's notifications about emails that it accepted.
package feedback

import (
	"email-gateway/shared/store/internal/pg"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct{ db *pg.DB }

// New makes a Store on connections.
func New(db *pg.DB) *Store { return &Store{db: db} }
