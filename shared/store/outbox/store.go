// Package outbox accepts emails, alone or in a batch, loads them for workers, and moves them from one status to the
// next. Each move writes its event, log and dead letter in the same commit.
package outbox

import (
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/sql"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	db     *pg.DB
	keys   *idempotency.Store
	quotas *quota.Store

	insertEmail, scheduleEmail, loadEmail, advanceEmail, advancePlain, advanceWaiting *pg.Prepared
}

// New returns a Store on connections.
func New(db *pg.DB, keys *idempotency.Store, quotas *quota.Store) *Store {
	return &Store{
		db: db, keys: keys, quotas: quotas,
		insertEmail:    db.Prepare(sql.Accept),
		scheduleEmail:  db.Prepare(sql.AcceptScheduled),
		loadEmail:      db.Prepare(sql.Load),
		advanceEmail:   db.Prepare(sql.Advance),
		advancePlain:   db.Prepare(sql.AdvancePlain),
		advanceWaiting: db.Prepare(sql.AdvanceWaiting),
	}
}
