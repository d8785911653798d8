// Package recipient contains the SQL statements of recipients, the people that companies write to: imports, which are
// accepted as rows of the outbox and merged into the table by workers, look-ups and deletions.
package recipient

import (
	"context"

	"github.com/google/uuid"

	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/quota"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	db     *pg.DB
	keys   *idempotency.Store
	quotas *quota.Store
	exists func(ctx context.Context, outboxID uuid.UUID) (bool, error)
}

// New returns a Store that uses the connections of db. exists reports whether a row of the outbox was committed.
func New(db *pg.DB, keys *idempotency.Store, quotas *quota.Store, exists func(ctx context.Context, outboxID uuid.UUID) (bool, error)) *Store {
	return &Store{db: db, keys: keys, quotas: quotas, exists: exists}
}
