// Package suppressions lists, adds and removes the addresses that a company does not send to.
package suppressions

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/rules"
	"email-gateway/shared/store/suppression"
)

// Store is the part of *store.Store that requests about suppressions use.
type Store interface {
	AddSuppression(ctx context.Context, company uuid.UUID, s suppression.Suppression) (suppression.Suppression, error)
	Unsuppress(ctx context.Context, company uuid.UUID, address string, reason suppression.Reason) error
	Suppressions(ctx context.Context, company uuid.UUID, f suppression.Filter) ([]suppression.Suppression, error)
}

// Handlers handle the requests about suppressions.
type Handlers struct {
	store  Store
	rules  *rules.Rules
	reader *strictjson.Reader[addRequest]
}

// New returns Handlers.
func New(s Store, checks *rules.Rules) (*Handlers, error) {
	reader, err := strictjson.NewReader[addRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare suppressions: %w", err)
	}
	return &Handlers{store: s, rules: checks, reader: reader}, nil
}
