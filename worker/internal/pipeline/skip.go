package pipeline

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/telemetry"
)

// skip ends the task of an email that is not sent, or not now: its status, deadline, lane, suppression or the circuit
// breaker does not allow it.
func (p *Pipeline) skip(ctx context.Context, log *slog.Logger, a *attempt) (done bool, err error) {
	row := a.row
	switch {
	case row.Status == email.Sent && !mayClaim(row.Status):
		p.alreadySent(ctx, log, a)
		return true, nil
	case !mayClaim(row.Status): // in a final status, or claimed by another worker
		log.Debug("nothing to do", "status", row.Status)
		return true, nil
	case row.Expired:
		return true, p.expire(ctx, log, a)
	case !row.Due || !row.LaneOpen || !row.BreakerClosed:
		return true, p.postponer.dropTask(ctx, log, a, row.Status)
	case row.Suppressed != "":
		return true, p.suppress(ctx, log, a)
	}
	return false, nil
}

// expire ends an email whose deadline passed while it was queued.
func (p *Pipeline) expire(ctx context.Context, log *slog.Logger, a *attempt) error {
	t := a.transition(outbox.GuardOverdue, email.Expired)
	t.ErrorCode = email.CodeExpired
	t.Events = []email.Event{event(email.EventExpired, time.Now(), map[string]any{"expiresAt": a.row.ExpiresAt.UTC()})}
	done, err := p.Advancer.Advance(ctx, t)
	switch {
	case err != nil:
		return err
	case done.Locked:
		return p.postponer.rowLocked(ctx, a)
	case !done.Applied:
		return nil
	}
	p.Metrics.transitions(t.Events)
	p.recorder.ended(log, a, email.Expired)
	return nil
}

// suppress ends an email to a suppressed address without a provider call.
func (p *Pipeline) suppress(ctx context.Context, log *slog.Logger, a *attempt) error {
	t := a.transition(outbox.GuardOpen, email.Suppressed)
	t.ErrorCode, t.ErrorReason = email.CodeSuppressed, a.row.Suppressed
	t.Events = []email.Event{event(email.EventSuppressed, time.Now(), map[string]any{"reason": a.row.Suppressed})}
	if applied, err := p.endUnclaimed(ctx, log, a, t); !applied {
		return err
	}
	p.recorder.ended(log.With("reason", a.row.Suppressed), a, email.Suppressed)
	return nil
}

// endUnclaimed ends an email that was not claimed. It is not applied if the email is locked, or was changed since it
// was loaded: its task is then postponed or dropped.
func (p *Pipeline) endUnclaimed(ctx context.Context, log *slog.Logger, a *attempt, t outbox.Transition) (applied bool, err error) {
	done, err := p.Advancer.Advance(ctx, t)
	switch {
	case err != nil:
		return false, err
	case done.Locked:
		return false, p.postponer.rowLocked(ctx, a)
	case !done.Applied:
		return false, p.postponer.dropTask(ctx, log, a, done.Status)
	}
	p.Metrics.transitions(t.Events)
	return true, nil
}

// resultAlreadySent is the status logged for a task whose email was sent before.
const resultAlreadySent = "ALREADY_SENT"

// alreadySent acknowledges the task of an email that was sent before. Completed tasks are not
// retained, so the log line is the only result, also if the provider's id cannot be read.
func (p *Pipeline) alreadySent(ctx context.Context, log *slog.Logger, a *attempt) {
	id, err := p.Loader.SESMessageID(ctx, a.row.ID)
	if err != nil {
		log = log.With("error", email.MaskText(err.Error()))
	}
	log.Info("email already sent", telemetry.State, email.Sent, "status", resultAlreadySent, "sesMessageId", id)
}

// withoutSuppressed removes the suppressed copies.
func withoutSuppressed(copies, suppressed []string) []string {
	return slices.DeleteFunc(copies, func(address string) bool { return slices.Contains(suppressed, address) })
}
