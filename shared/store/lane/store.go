// Package lane holds the statements of dispatch lanes, the queues in which rows of the outbox wait for a dispatcher.
// Operators hold and release lanes. A program that has written rows notifies the dispatchers of the lanes that have new
// ones.
package lane

import (
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/sql"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	db *pg.DB

	wakeLanes *pg.Prepared // runs once for each group of accepted emails
}

// New returns a Store on connections.
func New(db *pg.DB) *Store { return &Store{db: db, wakeLanes: db.Prepare(sql.WakeLanes)} }
