// Package unsubscribepage serves the unsubscribe links of mailings: the confirmation page, and the
// one-click POST of RFC 8058.
package unsubscribepage

import (
	"context"
	"log/slog"

	"github.com/google/uuid"

	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/suppression"
	"email-gateway/shared/unsubscribe"
)

// Store is the part of *store.Store that unsubscribe links use.
type Store interface {
	Suppress(ctx context.Context, company uuid.UUID, s suppression.Suppression) error
	FindMailing(ctx context.Context, company, id uuid.UUID) (mailing.Mailing, error)
}

// Handlers handle the requests of unsubscribe links.
type Handlers struct {
	log   *slog.Logger
	store Store
	keys  unsubscribe.Keys
}

// New returns Handlers. keys decrypt the links.
func New(log *slog.Logger, s Store, keys unsubscribe.Keys) *Handlers {
	return &Handlers{log: log, store: s, keys: keys}
}
