// Package deadletters shows, lists, retries and discards dead letters, one at a time or all that
// match a filter.
package deadletters

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/emails"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/rules"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/lane"
)

// Store is the part of *store.Store that dead letters use.
type Store interface {
	ListDeadLetters(ctx context.Context, company uuid.UUID, q deadletter.LetterQuery) (deadletter.LetterPage, error)
	FindDeadLetter(ctx context.Context, company, id uuid.UUID) (deadletter.Letter, error)
	RetryOne(ctx context.Context, l deadletter.Letter, r deadletter.LetterRetry) (deadletter.Shown, error)
	DiscardOne(ctx context.Context, l deadletter.Letter, by audit.Actor, note string) (deadletter.Shown, bool, error)
	CreateReplay(ctx context.Context, n deadletter.NewReplay) (deadletter.Replay, error)
	FindReplay(ctx context.Context, company, id uuid.UUID) (deadletter.Replay, error)
}

// Params are the dependencies of Handlers. All are required except HasRabbitMQ.
type Params struct {
	Store  Store
	Emails *emails.Handlers
	Rules  *rules.Rules
	// HasRabbitMQ is false if only dead letters of single emails can be retried.
	HasRabbitMQ bool
	// TTL is the new deadline of a retried email, from now.
	TTL time.Duration
	// Wake notifies the dispatchers that these lanes have work.
	Wake func(lanes ...lane.Lanes)
}

// Handlers handle the requests about dead letters.
type Handlers struct {
	store       Store
	emails      *emails.Handlers
	rules       *rules.Rules
	hasRabbitMQ bool
	ttl         time.Duration
	wake        func(lanes ...lane.Lanes)
	discards    *strictjson.Reader[discardRequest]
	replays     *strictjson.Reader[replayRequest]
}

// New returns Handlers.
func New(p Params) (*Handlers, error) {
	discards, err := strictjson.NewReader[discardRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare discards: %w", err)
	}
	replays, err := strictjson.NewReader[replayRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare replays: %w", err)
	}
	return &Handlers{
		store: p.Store, emails: p.Emails, rules: p.Rules, hasRabbitMQ: p.HasRabbitMQ, ttl: p.TTL, wake: p.Wake, discards: discards, replays: replays,
	}, nil
}
