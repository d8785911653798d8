// Package slots limits how many statements a company has at Postgres at a time, so that a company
// with many or slow statements delays only itself.
package slots

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/companylimit"
)

const (
	// Statements limits concurrent statements about companies' rows, StatementsPerCompany those of one
	// company. A company with 50 requests per second needs four when Postgres is so busy that
	// each statement takes 80 ms.
	Statements, StatementsPerCompany = 8, 4
	// LookUps and LookUpsPerCompany are the same for the lookups by key that accepting an email
	// needs. A company's slow searches do not delay its emails.
	LookUps, LookUpsPerCompany = 6, 4
	// Wait limits how long a request waits for a slot.
	Wait = 5 * time.Second
)

// A slot did not become free within Wait, because of the company's own requests or of others.
var (
	ErrCompanyBusy = errors.New("too many requests of the company at once")
	ErrAllBusy     = errors.New("too many requests of all companies at once")
)

// Slots are the slots of one api. Transitions of emails need none: they wait for locks, which the
// store limits itself. A slow client holds no slot.
type Slots struct {
	// Wait limits how long a request waits for a slot.
	Wait           time.Duration
	slots, lookUps *companylimit.Limiter
}

// New returns the slots of an api.
func New() Slots {
	return Slots{
		Wait:  Wait,
		slots: companylimit.New(Statements, StatementsPerCompany), lookUps: companylimit.New(LookUps, LookUpsPerCompany),
	}
}

// ForLookUp returns the slots of lookups.
func (s Slots) ForLookUp() Slots {
	s.slots = s.lookUps
	return s
}

// Enter waits for a slot of the company.
func (s Slots) Enter(ctx context.Context, company uuid.UUID) (release func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, s.Wait)
	defer cancel()
	release, err = s.slots.Enter(waiting, company)
	switch {
	case err == nil || ctx.Err() != nil:
		return release, err
	case errors.Is(err, companylimit.ErrCompanyLimit):
		return nil, ErrCompanyBusy
	}
	return nil, ErrAllBusy
}

// Run runs a statement that returns a value.
func Run[R any](ctx context.Context, s Slots, company uuid.UUID, do func() (R, error)) (R, error) {
	release, err := s.Enter(ctx, company)
	if err != nil {
		var none R
		return none, err
	}
	defer release()
	return do()
}

// Do runs a statement that returns only an error.
func (s Slots) Do(ctx context.Context, company uuid.UUID, do func() error) error {
	_, err := Run(ctx, s, company, func() (struct{}, error) { return struct{}{}, do() })
	return err
}
