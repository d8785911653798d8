// Package quota contains the SQL statements of quotas: the limits of companies, their usage, and the lock under which
// requests of a company that is close to a limit are checked one at a time.
package quota

import (
	"context"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	db     *pg.DB
	quotas *cache
	files  *cache // of stored files: reading their usage includes mailings, which emails do not need
}

// New returns a Store that uses the connections of db.
func New(db *pg.DB) *Store {
	reading := func(ofMailings bool) *cache {
		return newCache(func(ctx context.Context, company uuid.UUID) (map[Quota]Use, error) {
			return Read(ctx, db, company, ofMailings)
		})
	}
	return &Store{db: db, quotas: reading(false), files: reading(true)}
}
