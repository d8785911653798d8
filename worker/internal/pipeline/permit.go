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

// tokenLife is how long a token is valid. Usually an email takes milliseconds from admission to
// call. Emails delayed longer by the database would all be sent in the same moment, and the
// provider measures the rate over about a second: they wait for a new token.
const tokenLife = 3 * time.Second

// permit is the right to send one email: tokens of the send rate, one per recipient.
type permit struct {
	pacer Pacer
	held  int
	since time.Time
}

// admitted returns the permit of a task. The consumer waited for one token before it took the task;
// the tokens of the other recipients are borrowed from here on.
func (p *Pipeline) admitted(task queue.Task, job email.SendJob) *permit {
	t := &permit{pacer: p.Pacer, since: task.Admitted}
	if !task.Admitted.IsZero() {
		t.held = 1
		// The payload is not validated yet, so its recipients are capped; the outbox row decides
		// later.
		t.resize(1 + min(len(job.CC), email.MaxCopies) + min(len(job.BCC), email.MaxCopies))
	}
	return t
}

func (t *permit) fresh() bool { return time.Since(t.since) < tokenLife }

// resize adjusts the held tokens to the number of recipients without waiting.
func (t *permit) resize(recipients int) {
	switch more := recipients - t.held; {
	case more > 0:
		t.pacer.Borrow(more)
	case more < 0:
		t.pacer.Return(-more)
	}
	t.held = recipients
}

// use marks the tokens as spent: the email is being sent.
func (t *permit) use() { t.held = 0 }

// release returns the tokens of an email that is not sent. An old token expires, since its second
// is over; borrowed tokens are returned.
func (t *permit) release() {
	back := t.held
	if back > 0 && !t.fresh() {
		back--
	}
	if back > 0 {
		t.pacer.Return(back)
	}
	t.held = 0
}

// awaitPermit returns when the email may be sent. It waits for the send rate if the consumer did
// not, or if the token is too old. On a timeout or a stop the task returns to the queue: nothing
// has been written for it yet.
func (p *Pipeline) awaitPermit(ctx context.Context, t *permit, recipients int) error {
	if t.held > 0 && t.fresh() {
		t.resize(recipients)
		return nil
	}
	t.release()
	waiting, cancel := context.WithTimeout(ctx, rateLimitWait)
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
