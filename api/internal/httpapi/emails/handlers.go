// Package emails shows, lists, cancels, retries and reschedules emails.
package emails

import (
	"context"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/compose"
	"email-gateway/shared/rules"
	emailstore "email-gateway/shared/store/emails"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/outbox"
)

// Store is the part of *store.Store that requests about emails use.
type Store interface {
	FindEmail(ctx context.Context, company, id uuid.UUID) (emailstore.Email, error)
	ListEmails(ctx context.Context, company uuid.UUID, f emailstore.Filter) (emailstore.Page, error)
	AggregateEmails(ctx context.Context, company uuid.UUID, aggregateType, aggregateID string) ([]outbox.AggregateEmail, error)
	AdvanceAll(ctx context.Context, company uuid.UUID, ts []outbox.Transition) ([]outbox.Advanced, error)
	ChangeEmail(ctx context.Context, company uuid.UUID, t outbox.Transition) (emailstore.Changed, error)
	Reschedule(ctx context.Context, m outbox.Move) (emailstore.Changed, error)
}

// AttachmentStore finds the attachments of an email or of its mailing.
type AttachmentStore interface {
	Attachments(ctx context.Context, company, owner uuid.UUID) ([]file.Attachment, error)
}

// Params are the dependencies of Handlers. All are required.
type Params struct {
	Store Store
	// Timeline returns the events of an email.
	Timeline    func(ctx context.Context, company, id uuid.UUID) ([]emailstore.TimelineEvent, error)
	Attachments AttachmentStore
	Rules       *rules.Rules
	SendAt      *compose.SendAtReader
	// TTL is the time after acceptance within which an email must reach the provider.
	TTL time.Duration
	// MaxAttempts is how many tries an email has.
	MaxAttempts int
	// Wake notifies the dispatchers that these lanes have work.
	Wake func(lanes ...lane.Lanes)
}

// Handlers handle the requests about emails.
type Handlers struct {
	store       Store
	timeline    func(ctx context.Context, company, id uuid.UUID) ([]emailstore.TimelineEvent, error)
	attachments AttachmentStore
	rules       *rules.Rules
	sendAt      *compose.SendAtReader
	ttl         time.Duration
	maxAttempts int
	wake        func(lanes ...lane.Lanes)
}

// New returns Handlers.
func New(p Params) *Handlers {
	return &Handlers{
		store: p.Store, timeline: p.Timeline, attachments: p.Attachments, rules: p.Rules, sendAt: p.SendAt,
		ttl: p.TTL, maxAttempts: p.MaxAttempts, wake: p.Wake,
	}
}
