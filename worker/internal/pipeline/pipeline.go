// Package pipeline processes one email task: RECEIVED → VALIDATED → SENT_ATTEMPT → SENT, FAILED or
// RETRY_SCHEDULED. Handle is the entry point and lists all steps in order.
//
// The package depends only on the contracts of queue and provider, not on a broker or on SES.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/breaker"
	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/queue"
)

// Loader reads an email; store.ErrNotFound if there is none.
type Loader interface {
	Load(ctx context.Context, id uuid.UUID) (*store.LoadedEmail, error)
	// ReadBody reads html and text of an email that are too large to be loaded with it.
	ReadBody(ctx context.Context, id uuid.UUID) (html, text string, err error)
	// ReadFields reads the fields of a mailing's email that are too large to be loaded with it.
	ReadFields(ctx context.Context, id uuid.UUID) ([]string, error)
	// SESMessageID returns the provider's id of a sent email, "" if it is not known.
	SESMessageID(ctx context.Context, id uuid.UUID) (string, error)
}

// Advancer changes an email's status, log and events in one commit, if the transition's guard
// holds.
type Advancer interface {
	Advance(ctx context.Context, t store.Transition) (store.Advanced, error)
}

// Outbox has the operations that are not status transitions.
type Outbox interface {
	DropTask(ctx context.Context, id uuid.UUID, delay time.Duration) (locked bool, err error)
	NoteDroppedTask(ctx context.Context, id uuid.UUID) error
	DeadLetterTask(ctx context.Context, t store.DeadTask) error
	// WakeLanes makes the dispatchers read the lanes again because emails in them are due.
	WakeLanes(ctx context.Context, lanes []store.Lanes) error
}

// Pacer limits the recipients per second to the provider's send rate.
type Pacer interface {
	Wait(ctx context.Context, recipients int) error
	// Borrow records recipients that are sent to without a wait: later emails wait for them.
	Borrow(recipients int)
	// Return gives tokens back for an email that was not sent.
	Return(recipients int)
	// Throttled reports that the provider throttled a call that began then.
	Throttled(begun time.Time)
	// Accepted reports that the provider accepted a call that began then.
	Accepted(begun time.Time)
}

// Breaker is the provider's circuit breaker, shared by all workers. The result of every call is
// reported to it.
type Breaker interface {
	// Answered reports that the provider accepted the email.
	Answered(c breaker.Call)
	// Failed reports that it did not. If notCounted is true the email must be released without
	// counting the try, whatever its outcome.
	Failed(c breaker.Call, f *provider.Failure) (notCounted bool)
	// Skipped reports that the probe with this id ended without a call.
	Skipped(id uuid.UUID)
}

// RetryRoom bounds how many retries wait on a queue; the others wait in the outbox.
type RetryRoom interface {
	Free(ctx context.Context, queue string) bool
}

// Params configure a Pipeline.
type Params struct {
	Log         *slog.Logger
	Loader      Loader
	Advancer    Advancer
	Outbox      Outbox
	Pacer       Pacer
	Sender      provider.Sender
	Breaker     Breaker
	RetryRoom   RetryRoom
	Templates   Templates
	Attachments Attachments
	Links       Links
	Metrics     *Metrics
	MaxAttempts int
	Backoff     email.Backoff
	// TTL is how long an email of a mailing may take from its first attempt on; before that no
	// deadline applies. A single email has its own deadline.
	TTL time.Duration
	// FeedbackWindow is how long the pipeline waits for feedback if the outcome of a call is
	// unknown; 0 = there is no feedback.
	FeedbackWindow time.Duration
	// Sent is called for each accepted email with the time from its task's receipt to its recorded
	// result. Optional.
	Sent func(took time.Duration)
	// Results keeps results for the dispatchers while the database does not answer. Optional.
	Results Results
	// Database receives failed and late statements. Optional.
	Database Database
	// Tracer creates the spans of an attempt's steps.
	Tracer telemetry.Tracer
}

// Pipeline handles the tasks of the email queues. It is safe for concurrent use.
type Pipeline struct {
	Params
	bodies         *bodies
	pendingResults *pendingResults
	waiting        service.LogLimiter // of emails that wait for a setting or the storage
}

// New makes a Pipeline.
func New(p Params) *Pipeline {
	if p.Database == nil {
		p.Database = alwaysAvailable{}
	}
	return &Pipeline{Params: p, bodies: newBodies(p.Templates), pendingResults: newPendingResults()}
}

const (
	// callTimeout bounds the provider call.
	callTimeout = 30 * time.Second
	// rateLimitWait bounds the wait for the send rate of a task without a token. It leaves time for
	// the call before the queue considers the handler lost.
	rateLimitWait = 45 * time.Second
	// leaseNeeded is the minimum lease right before the call, so that the call ends within the
	// lease: 30 s for the call and one to record its result.
	leaseNeeded = callTimeout + time.Second
	// queueWait is the longest retry delay that is spent on the queue, where operators see it with
	// its reason. Longer ones wait in the outbox and leave room in the queue's window.
	queueWait = 30 * time.Second
	// repeatDelay is the pause between two tries of a write during a database outage.
	repeatDelay = 250 * time.Millisecond
	// refusedTime is how long the worker repeats a write of SENT that the database refuses: one lease.
	// After that, other processes treat the outcome as unknown.
	refusedTime = time.Minute
	// releaseDelay is how long a released email waits in the outbox.
	releaseDelay = 5 * time.Second
)

// Handle is the queue's handler for one email task. It returns nil when the task is done, including
// when there is nothing left to do. If ctx ends, the worker is stopping: a read or write that this
// interrupts is not an error, and the task returns to the queue.
func (p *Pipeline) Handle(ctx context.Context, task queue.Task) (err error) {
	begun, number := time.Now(), 0
	if task.Retried > 0 { // the first panic is the queue's, which logs its stack and retries the task
		defer func() {
			if cause := recover(); cause != nil {
				err = p.faultAgain(ctx, task, number, begun, fmt.Errorf("panic: %v", cause))
			}
		}()
	}
	err = p.handle(ctx, task, &number)
	if store.IsOutage(err) {
		p.Database.Failed()
	}
	switch {
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || store.IsOutage(err)):
		return stopped()
	case err != nil && task.Retried > 0:
		return p.faultAgain(ctx, task, number, begun, err)
	}
	return err
}

// handle stores the number of the try in number once the email is loaded.
func (p *Pipeline) handle(ctx context.Context, task queue.Task, number *int) error {
	received := time.Now()
	opening, opened := p.Tracer.Start(ctx, "load", telemetry.Internal)
	job, decoding := email.DecodeSendJob(task.Payload)
	permit := p.admitted(task, job)
	defer permit.release()
	row, err := p.open(opening, task, job, decoding, received)
	opened.End()
	switch {
	case store.IsOutage(err):
		return &queue.RetryLater{Delay: outageDelay, Reason: "database unavailable"}
	case row == nil || err != nil:
		return err
	}
	crashpoint.At(crashpoint.SendLoaded)
	a := newAttempt(row, job, task.Queue, received)
	*number = a.number()
	log := a.logger(ctx, p.Log)
	if row.Probe && row.Status.Claimable() {
		defer p.skipped(a)
	}

	switch {
	case row.Status == email.Sent && !mayClaim(row.Status):
		p.alreadySent(ctx, log, a)
		return nil
	case !mayClaim(row.Status): // in a final status, or claimed by another worker
		log.Debug("nothing to do", "status", row.Status)
		return nil
	case row.Expired:
		return p.expire(ctx, log, a)
	case !row.Due || !row.LaneOpen || !row.BreakerClosed:
		return p.dropTask(ctx, log, a, row.Status)
	case row.Suppressed != "":
		return p.suppress(ctx, log, a)
	}
	if mailing, ok := a.unsubscribesFrom(); ok {
		if p.Links.Keys.Empty() {
			return p.withoutLink(ctx, log, a)
		}
		a.link = p.Links.of(a, mailing)
	}
	if row.MailingID.Valid {
		if err := p.bodies.find(ctx, a); err != nil {
			return err
		}
	}
	room, ok, err := p.reserve(ctx, log, a, a.storedSize())
	if !ok {
		return err
	}
	defer func() { room.Release() }()
	if err := p.loadBody(ctx, a); err != nil {
		return err
	}

	if failed := validate(a, p.MaxAttempts); failed != nil {
		return p.refuse(ctx, log, a, failed)
	}
	if ok, err := p.reserveRendered(ctx, log, a, &room); !ok {
		return err
	}
	a.addText()
	if ok, err := p.loadAttachments(ctx, log, a, room); !ok {
		return err
	}
	a.reach(email.EventValidated)
	if err := p.awaitPermit(ctx, permit, a.recipients()); err != nil {
		return err
	}
	crashpoint.At(crashpoint.SendTurn)
	// From here on neither a stop nor the queue may interrupt: an abandoned claim blocks its email
	// until the lease ends.
	ctx = context.WithoutCancel(ctx)
	claim, err := p.claim(ctx, log, a)
	switch {
	case err != nil:
		return err
	case claim.Locked:
		return p.postpone(ctx, a, lockedDelay)
	case claim.Status == email.Sent && !isMine(claim):
		p.alreadySent(ctx, log, a)
		return nil
	case isMine(claim) && a.givenUp, claim.SameToken && claim.Status == email.OutcomeUnknown:
		return p.release(log, a, slog.LevelWarn, claimUnanswered, nil)
	case !isMine(claim):
		return p.dropTask(ctx, log, a, claim.Status)
	case time.Until(claim.LeaseUntil) < leaseNeeded:
		return p.release(log, a, slog.LevelWarn, "the lease is too short for the call", nil)
	}

	permit.use()
	receipt, err := p.call(ctx, a)
	room.Release() // the result may be recorded much later
	_, recorded := p.Tracer.Start(ctx, "record", telemetry.Internal)
	defer recorded.End()
	if err != nil {
		return p.recordFailure(log, a, asFailure(err))
	}
	return p.sent(log, a, receipt)
}

// call makes one provider call.
func (p *Pipeline) call(ctx context.Context, a *attempt) (provider.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	a.called = time.Now()
	receipt, err := p.Sender.Send(ctx, a.message())
	a.forgetContent()
	crashpoint.At(crashpoint.SendAnswered)
	p.Metrics.called(time.Since(a.called), err)
	return receipt, err
}

// expire ends an email whose deadline passed while it was queued.
func (p *Pipeline) expire(ctx context.Context, log *slog.Logger, a *attempt) error {
	t := a.transition(store.GuardOverdue, email.Expired)
	t.ErrorCode = email.CodeExpired
	t.Events = []email.Event{event(email.EventExpired, time.Now(), map[string]any{"expiresAt": a.row.ExpiresAt.UTC()})}
	done, err := p.Advancer.Advance(ctx, t)
	switch {
	case err != nil:
		return err
	case done.Locked:
		return p.rowLocked(ctx, a)
	case !done.Applied:
		return nil
	}
	p.Metrics.transitions(t.Events)
	p.ended(log, a, email.Expired)
	return nil
}

// skipped lets the circuit breaker choose another probe if this one ended without a call.
func (p *Pipeline) skipped(a *attempt) {
	if a.called.IsZero() {
		p.Breaker.Skipped(a.row.ID)
	}
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

// asFailure maps an error that is not a provider.Failure to Unknown, the only safe outcome.
func asFailure(err error) *provider.Failure {
	var f *provider.Failure
	if errors.As(err, &f) {
		return f
	}
	return &provider.Failure{
		Outcome: provider.Unknown, Code: "PROVIDER_ERROR", Category: provider.TransientError, Reason: err.Error(), Err: err,
	}
}

// jitter returns a random factor in [0, 1) for the backoff.
func jitter() float64 { return rand.Float64() }
