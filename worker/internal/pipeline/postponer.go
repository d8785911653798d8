package pipeline

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/queue"
)

const (
	// lockedDelay is the retry delay for an email that another transaction has locked, such as one
	// that reschedules or cancels it.
	lockedDelay = time.Second
	// faultDelay is how long an email waits in the outbox after its task failed more than once with
	// an internal error.
	faultDelay = 30 * time.Second
	// linkDelay is how long a mailing's email waits for an operator to set UNSUBSCRIBE_KEY or PUBLIC_URL: a
	// mailing is not sent without an unsubscribe link.
	linkDelay = time.Minute
	// longAgo is the age of a task from which on a returned email needs a wake-up: dispatchers poll
	// a lane for a minute after they took from it, and their clock may differ from ours. Emails due
	// after foundAfter need none: all lanes are listed that often.
	longAgo    = 45 * time.Second
	foundAfter = 30 * time.Second
)

// postponer leaves emails that cannot be sent now to the dispatchers.
type postponer struct{ *Params }

// dropTask acknowledges a task whose email cannot be sent now: it is not due, its lane is closed,
// or the circuit breaker is open. The dispatcher enqueues the email when it is due again. A PENDING
// email is the dispatcher's already.
func (p *postponer) dropTask(ctx context.Context, log *slog.Logger, a *attempt, status email.Status) error {
	log.Debug("email cannot be sent now", "status", status)
	if status != email.Enqueued && status != email.RetryScheduled {
		return nil
	}
	return p.postpone(ctx, a, 0)
}

// postpone acknowledges the task and leaves the email to the dispatcher, for at least the delay.
func (p *postponer) postpone(ctx context.Context, a *attempt, delay time.Duration) error {
	locked, err := p.Outbox.DropTask(ctx, a.row.ID, delay)
	switch {
	case locked:
		return p.rowLocked(ctx, a)
	case err != nil:
		return err
	}
	p.wakeLane(ctx, a, delay)
	return nil
}

// wakeLane wakes the dispatchers for an email that is PENDING again and due after delay, if they
// would not read its lane in time.
func (p *postponer) wakeLane(ctx context.Context, a *attempt, delay time.Duration) {
	if time.Since(a.task.EnqueuedAt) < longAgo || delay > foundAfter {
		return
	}
	lanes := []lane.Lanes{{Company: a.row.CompanyID, Queue: a.queue, Mailing: a.row.MailingID.UUID}}
	if err := p.Outbox.WakeLanes(ctx, lanes); err != nil {
		p.Log.Debug("cannot wake the dispatchers: their next listing finds the email", "error", err)
	}
}

// rowLocked retries an email that another transaction has locked, after a delay in which that one
// can commit. Such tasks take no more of the window than other retries: without room the task is
// dropped, and the rescuer enqueues the email again. The note is committed before the task leaves
// the queue, so that the task is not counted as lost.
func (p *postponer) rowLocked(ctx context.Context, a *attempt) error {
	if !p.RetryRoom.Free(ctx, a.queue) {
		return p.Outbox.NoteDroppedTask(ctx, a.row.ID)
	}
	return &queue.RetryLater{Delay: lockedDelay, Reason: "the email's row is locked"}
}

// faultAgain postpones an email in the outbox whose task failed more than once with an internal
// error. On the queue such tasks would take other tenants' room in the window. It logs the number of the attempt. If
// the email was not loaded that is the payload's, with which the task was published: retries on the queue do not change it.
func (p *postponer) faultAgain(ctx context.Context, d *delivery, err error) error {
	var (
		later *queue.RetryLater
		dead  *queue.Dead
	)
	id, parsing := uuid.Parse(d.ID)
	if errors.As(err, &later) || errors.As(err, &dead) || parsing != nil {
		return err
	}
	if locked, dropping := p.Outbox.DropTask(ctx, id, faultDelay); dropping != nil || locked {
		return err
	}
	failed := telemetry.EmailOf(d.ID, d.Payload)
	failed.Attempt = cmp.Or(d.attempt, failed.Attempt)
	telemetry.EmailLogger(p.Log, failed).Error("task failed again, email postponed", telemetry.State, email.EventReceived,
		telemetry.DurationMS, time.Since(d.received).Milliseconds(), "delay", faultDelay.String(), "error", email.MaskText(err.Error()))
	return nil
}

func stopped() error { return &queue.RetryLater{Reason: "worker is stopping"} }
