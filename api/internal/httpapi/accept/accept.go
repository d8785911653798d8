// Package accept commits the rows of a request once. It reads the Idempotency-Key, commits with a
// deadline, looks for the rows of a commit that Postgres did not confirm, and repeats the response of
// an earlier request with the same key or about the same object.
package accept

import (
	"context"

	"github.com/google/uuid"

	"email-gateway/shared/store/idempotency"
)

// Store is the part of *store.Store that accepting uses.
type Store interface {
	FindAnswer(ctx context.Context, company uuid.UUID, route, key string) (idempotency.StoredAnswer, error)
	StoreAnswer(ctx context.Context, company, id uuid.UUID, k idempotency.Key) (idempotency.StoredAnswer, error)
	Exists(ctx context.Context, id uuid.UUID) (bool, error)
	Confirm(ctx context.Context) error
}

// Committer commits the rows of requests, and repeats stored responses.
type Committer struct{ store Store }

// New returns a Committer.
func New(s Store) *Committer { return &Committer{store: s} }
