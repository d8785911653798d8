// Package recipients stores, shows and deletes recipients.
package recipients

import (
	"context"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/accept"
	"email-gateway/api/internal/httpapi/taxid"
	"email-gateway/shared/rules"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/telemetry"
)

// Store is the part of *store.Store that requests about recipients use.
type Store interface {
	AcceptRecipients(ctx context.Context, r recipient.NewRecipients) error
	FindRecipient(ctx context.Context, company, id uuid.UUID) (recipient.Known, error)
	DeleteRecipient(ctx context.Context, company, id uuid.UUID) error
}

// Params are the dependencies of Handlers. All are required.
type Params struct {
	Store  Store
	Accept *accept.Committer
	Rules  *rules.Rules
	TaxIDs taxid.Protector
	Tracer telemetry.Tracer
	// Wake notifies the dispatchers that these lanes have work.
	Wake func(lanes ...lane.Lanes)
}

// Handlers handle the requests about recipients.
type Handlers struct {
	store  Store
	accept *accept.Committer
	reader *reader
	tracer telemetry.Tracer
	wake   func(lanes ...lane.Lanes)
}

// New returns Handlers.
func New(p Params) (*Handlers, error) {
	r, err := newReader(p.Rules, p.TaxIDs)
	if err != nil {
		return nil, err
	}
	return &Handlers{store: p.Store, accept: p.Accept, reader: r, tracer: p.Tracer, wake: p.Wake}, nil
}
