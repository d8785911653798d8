package pipeline

import (
	"context"
	"errors"
	"time"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
)

// claim wins the fence for this attempt, or finds that it is not to be won. When
// Postgres breaks off in the middle it asks again until there is an answer, because
// the claim may stand, and nobody else could ever touch the email.
func (p *Pipeline) claim(ctx context.Context, a *attempt) (store.Advanced, error) {
	ctx, span := p.Tracer.Start(ctx, "claim", telemetry.Internal)
	defer span.End()
	t := a.claim(time.Now())
	if a.row.MailingID.Valid && a.row.Attempts == 0 {
		t.Renew = p.TTL
	}
	begun := time.Now()
	won, err := p.Advancer.Advance(ctx, t)
	if errors.Is(err, store.ErrUnknownOutcome) {
		t.GiveWay = false // it may be ours already, and then nobody else can end it
		won, err = p.insist(ctx, t)
	}
	// Nobody else has this token: the claim was won by a try whose answer was lost. Ours
	// was not the only one, since database/sql repeats by itself what a broken connection
	// cut off.
	if err == nil && !won.Applied && won.SameToken && won.Status == email.Processing {
		won.Applied = true
		won.LeaseUntil = won.LeaseUntil.Add(-time.Since(begun))
	}
	if won.Applied {
		crashpoint.At(crashpoint.SendClaimed)
		a.won(won)
		a.reach(email.EventSentAttempt)
		p.Metrics.reached(a.reached)
		p.Metrics.transitions(t.Events)
	}
	return won, err
}

// insist repeats a write that Postgres did not answer, or that another transaction's lock
// kept from being made, until it is answered. Between two tries it holds no connection.
func (p *Pipeline) insist(ctx context.Context, t store.Transition) (store.Advanced, error) {
	delay := repeatDelay
	for {
		if err := service.Pause(ctx, delay); err != nil {
			return store.Advanced{}, err
		}
		done, err := p.Advancer.Advance(ctx, t)
		switch {
		case store.IsOutage(err):
			delay = repeatDelay
		case done.Locked:
			delay = min(2*delay, lockedDelay)
		default:
			return done, err
		}
	}
}
