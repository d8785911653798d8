package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/elapsed"
)

// claimUnanswered is why an email is released whose claim Postgres confirmed late.
const claimUnanswered = "Postgres confirmed the claim too late"

// claim claims the email for this attempt. It ends the task if another program has the email or has changed it, or if too
// little time remains for the call.
func (p *Pipeline) claim(ctx context.Context, log *slog.Logger, a *attempt) (done bool, err error) {
	claim, err := p.tryClaim(ctx, log, a)
	switch {
	case err != nil:
		return true, err
	case claim.Locked:
		return true, p.postponer.postpone(ctx, a, lockedDelay)
	case claim.Status == email.Sent && !isMine(claim):
		p.alreadySent(ctx, log, a)
		return true, nil
	case a.confirmedTooLate(claim):
		return true, p.outcomes.release(log, a, slog.LevelWarn, claimUnanswered, nil)
	case !isMine(claim):
		return true, p.postponer.dropTask(ctx, log, a, claim.Status)
	case -elapsed.Since(claim.LeaseUntil) < leaseNeeded:
		return true, p.outcomes.release(log, a, slog.LevelWarn, "the lease is too short for the call", nil)
	}
	return false, nil
}

// confirmedTooLate reports whether a dispatcher has ended the claimed attempt, or may have, before Postgres confirmed the claim.
func (a *attempt) confirmedTooLate(claim outbox.Advanced) bool {
	return isMine(claim) && a.givenUp || claim.SameToken && claim.Status == email.OutcomeUnknown
}

// tryClaim writes the claim. If the database's answer is lost it repeats the
// statement until there is an answer: the claim may be committed, and then no other worker could
// ever change the email. If that takes so long that a dispatcher may release the email, there is no call.
func (p *Pipeline) tryClaim(ctx context.Context, log *slog.Logger, a *attempt) (outbox.Advanced, error) {
	ctx, span := p.Tracer.Start(ctx, "claim", telemetry.Internal)
	defer span.End()
	t := a.claim(time.Now())
	t.Renew = p.TTL
	start := time.Now()
	claimed, err := p.Advancer.Advance(ctx, t)
	if errors.Is(err, store.ErrUnknownOutcome) {
		p.Database.Failed()
		t.GiveWay = false // the claim may be committed; then only this worker can finish the email
		pending := startPending(p.PendingResults, log, a.release(claimUnanswered, nil))
		claimed, err = p.recorder.retryUntilAnswered(ctx, &t)
		a.givenUp = pending.end()
	}
	// Only this attempt has the token: an earlier execution of this statement won the claim and its
	// answer was lost. That may have been one by database/sql, which repeats a statement after a
	// broken connection.
	if err == nil && !claimed.Applied && claimed.SameToken && claimed.Status == email.Processing {
		claimed.Applied = true
		claimed.LeaseUntil = claimed.LeaseUntil.Add(-elapsed.Since(start))
	}
	if claimed.Applied {
		crashpoint.At(crashpoint.SendClaimed)
		a.applyClaim(claimed)
		a.reach(email.EventSentAttempt)
		p.Metrics.reached(a.reached)
		p.Metrics.transitions(t.Events)
	}
	return claimed, err
}
