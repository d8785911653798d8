// Package sending accepts emails: POST /v1/email/send and POST /v1/email/batch. Send in send.go is
// the path of a single email; a batch composes each item in the same way and commits all of them in
// one transaction.
package sending

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/access"
	"email-gateway/api/internal/httpapi/accept"
	"email-gateway/api/internal/httpapi/compose"
	"email-gateway/api/internal/httpapi/taxid"
	"email-gateway/api/internal/strictjson"
	"email-gateway/api/internal/templates"
	"email-gateway/shared/draft"
	"email-gateway/shared/rules"
	"email-gateway/shared/store/emails"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/telemetry"
	"email-gateway/shared/uuidv7"
)

// Store is the part of *store.Store that sending uses.
type Store interface {
	AcceptBatch(ctx context.Context, b outbox.NewBatch) (outbox.BatchOutcome, error)
	Confirm(ctx context.Context) error
	Exists(ctx context.Context, id uuid.UUID) (bool, error)
	FindAnswer(ctx context.Context, company uuid.UUID, route, key string) (idempotency.StoredAnswer, error)
	FindEmail(ctx context.Context, company, id uuid.UUID) (emails.Email, error)
	RecipientMatches(ctx context.Context, company, recipient uuid.UUID, address string) (bool, error)
}

// Accepter commits new emails. *outbox.Accepter is one.
type Accepter interface {
	Accept(ctx context.Context, e outbox.NewEmail) error
}

// Params are the dependencies of Handlers. All are required.
type Params struct {
	Store    Store
	Accepter Accepter
	Accept   *accept.Committer
	// Limiter counts the items of a batch against the rate limit of the key.
	Limiter *access.Limiter
	Rules   *rules.Rules
	HTML    *compose.Checker
	Library *templates.Library
	Files   *compose.Files
	TaxIDs  taxid.Protector
	// TTL is the time after acceptance within which an email must reach the provider.
	TTL    time.Duration
	Tracer telemetry.Tracer
	// Wake notifies the dispatchers that these lanes have work.
	Wake func(lanes ...lane.Lanes)
}

// Handlers handle the requests that send emails.
type Handlers struct {
	store    Store
	accepter Accepter
	accept   *accept.Committer
	limiter  *access.Limiter
	rules    *rules.Rules
	composer *composer
	files    *compose.Files
	batches  *batchService
	tracer   telemetry.Tracer
	wake     func(lanes ...lane.Lanes)
}

// New returns Handlers.
func New(p Params) (*Handlers, error) {
	reader, err := strictjson.NewReader[draft.Email]()
	if err != nil {
		return nil, fmt.Errorf("prepare send requests: %w", err)
	}
	return &Handlers{
		store: p.Store, accepter: p.Accepter, accept: p.Accept, limiter: p.Limiter, rules: p.Rules, files: p.Files,
		batches: newBatchService(runtime.GOMAXPROCS(0)), tracer: p.Tracer, wake: p.Wake,
		composer: &composer{
			rules: p.Rules, reader: reader, recipients: p.Store, html: p.HTML, library: p.Library, files: p.Files,
			Protector: p.TaxIDs, ttl: p.TTL, newID: uuidv7.New,
		},
	}, nil
}
