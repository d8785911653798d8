// Package suppression contains the SQL statements of suppressions: addresses that a company must not write to, with the reason.
package suppression

import (
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/quota"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	db     *pg.DB
	quotas *quota.Store
}

// New returns a Store that uses the connections of db. quotas limits how many suppressions a tenant adds.
func New(db *pg.DB, quotas *quota.Store) *Store { return &Store{db: db, quotas: quotas} }
