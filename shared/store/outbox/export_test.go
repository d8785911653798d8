package outbox

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// AdvanceParameters are those of sql.Advance for the transitions.
func AdvanceParameters(ts []Transition) ([]any, error) { return argumentsFor(advanceParameters, ts) }

// AdvancePlainParameters are those of sql.AdvancePlain for the transitions.
func AdvancePlainParameters(ts []Transition) ([]any, error) { return argumentsFor(plainParameters, ts) }

func argumentsFor(p pg.Parameters[advanceScalars, Transition], ts []Transition) ([]any, error) {
	ready := make([]Transition, len(ts))
	for i, t := range ts {
		var err error
		if ready[i], err = t.encoded(); err != nil {
			return nil, err
		}
	}
	return advanceArguments(p, ready, 200*time.Millisecond), nil
}

// LoadParameters are those of sql.Load.
func LoadParameters(ids ...uuid.UUID) []any { return loadParameters.Arguments(len(ids), ids) }

// LoadGroup loads one group of emails.
func LoadGroup(ctx context.Context, s *Store, ids ...uuid.UUID) ([]*LoadedEmail, error) {
	return s.loadEmails(ctx, ids)
}

// NewCountingLoader returns a Loader that calls loaded with the size of each group.
func NewCountingLoader(s *Store, loaded func(emails int)) *Loader {
	return s.newLoader(func(ctx context.Context, ids []uuid.UUID) ([]*LoadedEmail, error) {
		loaded(len(ids))
		return s.loadEmails(ctx, ids)
	})
}

// InsertEmails writes one group of emails.
func InsertEmails(ctx context.Context, s *Store, emails []NewEmail) ([]bool, error) {
	for i := range emails {
		var err error
		if emails[i].payload, err = json.Marshal(emails[i].Job); err != nil {
			return nil, err
		}
	}
	return s.insertEmails(ctx, emails, 0)
}
