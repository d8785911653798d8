package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/queue"
)

// tokenLife is how long a token lets an email through. An email comes from its admission to its
// call in milliseconds. Emails that a database held up for longer would all be sent in the same
// moment, and the provider measures the rate over about a second: they wait for a token again.
const tokenLife = 3 * time.Second

// turn is the right of one email to be sent, in tokens of the send rate, one per recipient.
type turn struct {
	pacer Pacer
	held  int
	since time.Time
}

// admitted is the turn of a task: the queue's consumer has waited for one token before it took
// the task, and those of its other recipients are owed from the moment that they are known.
func (p *Pipeline) admitted(task queue.Task, job email.SendJob) *turn {
	t := &turn{pacer: p.Pacer, since: task.Admitted}
	if !task.Admitted.IsZero() {
		t.held = 1
		// The payload is checked later, and the outbox decides.
		t.resize(1 + min(len(job.CC), email.MaxCopies) + min(len(job.BCC), email.MaxCopies))
	}
	return t
}

func (t *turn) fresh() bool { return time.Since(t.since) < tokenLife }

// resize changes for how many recipients tokens are held, without a wait.
func (t *turn) resize(recipients int) {
	switch more := recipients - t.held; {
	case more > 0:
		t.pacer.Owe(more)
	case more < 0:
		t.pacer.Return(-more)
	}
	t.held = recipients
}

// use: the email is sent now, whatever becomes of it.
func (t *turn) use() { t.held = 0 }

// giveBack is for an email that is not sent now. An old token is lost, as its second is over; what
// is owed is not.
func (t *turn) giveBack() {
	back := t.held
	if back > 0 && !t.fresh() {
		back--
	}
	if back > 0 {
		t.pacer.Return(back)
	}
	t.held = 0
}

// awaitTurn returns when the email may be sent. It waits for the send rate if the consumer did not, or
// if the token has become too old since. A task whose turn does not come in time, or that meets
// a stop, goes back to the queue: nothing was written for it yet.
func (p *Pipeline) awaitTurn(ctx context.Context, t *turn, recipients int) error {
	if t.held > 0 && t.fresh() {
		t.resize(recipients)
		return nil
	}
	t.giveBack()
	waiting, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()
	waiting, span := p.Tracer.Start(waiting, "wait for the send rate", telemetry.Internal)
	defer span.End()
	err := p.Pacer.Wait(waiting, recipients)
	switch {
	case ctx.Err() != nil:
		return stopped()
	case errors.Is(err, context.DeadlineExceeded):
		return &queue.RetryLater{Delay: time.Second, Reason: "waiting for the send rate"}
	case err != nil:
		return fmt.Errorf("wait for the send rate: %w", err)
	}
	t.held, t.since = recipients, time.Now()
	return nil
}
