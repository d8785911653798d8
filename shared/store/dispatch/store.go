// Package dispatch holds the dispatcher's statements. They list the lanes with due rows, take and release rows, choose the email
// that probes the provider while the circuit breaker is open, find emails whose task or outcome was lost, and count the
// backlog.
package dispatch

import (
	"context"

	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/sql"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	db       *pg.DB
	breakers *breaker.Store
	wake     func(ctx context.Context, lanes []lane.Named) error // the dispatchers

	// A wake-up for a single email runs each of these once. Unprepared, their parsing and planning took a quarter of the time
	// from the POST of the email to SES.
	namedLanes, takeDue *pg.Prepared
}

// New returns a Store on connections. The Store calls wake for lanes to which it has returned rows.
func New(db *pg.DB, breakers *breaker.Store, wake func(ctx context.Context, lanes []lane.Named) error) *Store {
	return &Store{db: db, breakers: breakers, wake: wake, namedLanes: db.Prepare(sql.NamedLanes), takeDue: db.Prepare(sql.TakeDue)}
}
