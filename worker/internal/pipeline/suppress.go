package pipeline

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
)

// suppress ends an email to a suppressed address without a provider call.
func (p *Pipeline) suppress(ctx context.Context, log *slog.Logger, a *attempt) error {
	t := a.transition(outbox.GuardOpen, email.Suppressed)
	t.ErrorCode, t.ErrorReason = email.CodeSuppressed, a.row.Suppressed
	t.Events = []email.Event{event(email.EventSuppressed, time.Now(), map[string]any{"reason": a.row.Suppressed})}
	done, err := p.Advancer.Advance(ctx, t)
	switch {
	case err != nil:
		return err
	case done.Locked:
		return p.rowLocked(ctx, a)
	case !done.Applied:
		return p.dropTask(ctx, log, a, done.Status)
	}
	p.Metrics.transitions(t.Events)
	p.ended(log.With("reason", a.row.Suppressed), a, email.Suppressed)
	return nil
}

// withoutSuppressed removes the suppressed copies.
func withoutSuppressed(copies, suppressed []string) []string {
	return slices.DeleteFunc(copies, func(address string) bool { return slices.Contains(suppressed, address) })
}
