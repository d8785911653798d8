// Package webhooks manages the webhook endpoints of companies, their deliveries and replays.
package webhooks

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/slots"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/keyring"
	"email-gateway/shared/rules"
	"email-gateway/shared/standardwebhook"
	"email-gateway/shared/store/webhook"
)

// Store is the part of *webhook.Store that requests use. What changes a row returns it: a read in a slot of its own could fail
// after the change is committed, and a client that repeats such a request would create a second endpoint or secret.
type Store interface {
	Create(ctx context.Context, e webhook.Endpoint) (webhook.Endpoint, error)
	List(ctx context.Context, company uuid.UUID) ([]webhook.Endpoint, error)
	Find(ctx context.Context, company, id uuid.UUID) (webhook.Endpoint, error)
	Update(ctx context.Context, company, id uuid.UUID, c webhook.Change) (webhook.Endpoint, error)
	Delete(ctx context.Context, company, id uuid.UUID) error
	Rotate(ctx context.Context, company, id uuid.UUID, secret []byte, keep time.Duration) (webhook.Endpoint, error)
	Enable(ctx context.Context, company, id uuid.UUID) (webhook.Endpoint, error)
	Disable(ctx context.Context, company, id uuid.UUID) (webhook.Endpoint, error)
	Deliveries(ctx context.Context, company, endpoint uuid.UUID, f webhook.DeliveryFilter) ([]webhook.Delivery, error)
	FindDelivery(ctx context.Context, company, endpoint, id uuid.UUID) (webhook.Delivery, error)
	RetryDelivery(ctx context.Context, company, endpoint, id uuid.UUID) (webhook.Delivery, error)
	CreateTest(ctx context.Context, company, endpoint, id uuid.UUID) (webhook.Delivery, error)
	CreateReplay(ctx context.Context, r webhook.Replay) (webhook.Replay, error)
	FindReplay(ctx context.Context, company, endpoint, id uuid.UUID) (webhook.Replay, error)
}

// Params are the dependencies of Handlers. All are required except Policy.
type Params struct {
	Store Store
	// Slots limits the statements of one company.
	Slots slots.Slots
	Rules *rules.Rules
	// Ring encrypts secrets.
	Ring keyring.Ring
	// Policy says which URLs endpoints may have.
	Policy standardwebhook.Policy
}

// Handlers handle the requests about webhook endpoints.
type Handlers struct {
	store   Store
	slots   slots.Slots
	rules   *rules.Rules
	ring    keyring.Ring
	policy  standardwebhook.Policy
	creates *strictjson.Reader[createRequest]
	changes *strictjson.Reader[changeRequest]
	replays *strictjson.Reader[replayRequest]
}

// New returns Handlers.
func New(p Params) (*Handlers, error) {
	creates, err := strictjson.NewReader[createRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare new webhooks: %w", err)
	}
	changes, err := strictjson.NewReader[changeRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare changes of webhooks: %w", err)
	}
	replays, err := strictjson.NewReader[replayRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare replays of webhooks: %w", err)
	}
	return &Handlers{
		store: p.Store, slots: p.Slots, rules: p.Rules, ring: p.Ring, policy: p.Policy,
		creates: creates, changes: changes, replays: replays,
	}, nil
}
