// Package dispatch holds the dispatcher's statements. They list the lanes with due rows, take and release rows, choose the email
// that probes the provider while the circuit breaker is open, find emails whose task or outcome was lost, and count the
// backlog.
package dispatch

import (
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/internal/pg"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	db       *pg.DB
	breakers *breaker.Store

	// A wake-up for a single email runs each once. Without preparation Postgres parsed and planned them each time, which took
	// a quarter of the time from the email's POST to SES.
	namedLanes, takeDue *pg.Prepared
}

// New makes a Store on connections.
func New(db *pg.DB, breakers *breaker.Store) *Store {
	return &Store{db: db, breakers: breakers, namedLanes: db.Prepare(namedLanesSQL), takeDue: db.Prepare(takeDueSQL)}
}
