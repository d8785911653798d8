// Package pipeline takes one email from its task to its next resting place:
// RECEIVED → VALIDATED → SENT_ATTEMPT → SENT, FAILED or RETRY_SCHEDULED. Read
// Handle from top to bottom and you have read what a worker does.
//
// It knows no broker and no provider, only their contracts, and is used by the
// worker's main.
package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/gate"
	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/queue"
)

// Loader reads an email; store.ErrNotFound if there is none.
type Loader interface {
	Load(ctx context.Context, id uuid.UUID) (*store.LoadedEmail, error)
	// SESMessageID is the provider's id of a sent email, "" if it is not known.
	SESMessageID(ctx context.Context, id uuid.UUID) (string, error)
}

// Advancer moves an email to a status, with its log and events, if its guard holds.
type Advancer interface {
	Advance(ctx context.Context, t store.Transition) (store.Advanced, error)
}

// Outbox takes what is not a step of an email's life.
type Outbox interface {
	DropTask(ctx context.Context, id uuid.UUID, delay time.Duration) (locked bool, err error)
	NoteDroppedTask(ctx context.Context, id uuid.UUID) error
	BuryTask(ctx context.Context, t store.DeadTask) error
	// WakeLanes makes dispatchers look at lanes in which emails are due again.
	WakeLanes(ctx context.Context, lanes []store.Lanes) error
}

// Pacer lets through as many recipients per second as the provider allows.
type Pacer interface {
	Wait(ctx context.Context, recipients int) error
	// Owe notes recipients that are sent to and were not waited for: the next emails wait for them.
	Owe(recipients int)
	// Return gives back what was let through for an email that then was not sent.
	Return(recipients int)
	// Throttled: the provider refused a call that began then, for there were too many.
	Throttled(begun time.Time)
	// Accepted: it accepted one.
	Accepted(begun time.Time)
}

// Gate is the circuit breaker before the provider that all workers share. It is told how
// every call ended; package gate keeps it.
type Gate interface {
	// Answered: the provider took the email.
	Answered(c gate.Call)
	// Failed: it did not. unspent asks for the email to be given back with its try,
	// whatever its verdict.
	Failed(c gate.Call, f *provider.Failure) (unspent bool)
	// Skipped: the probe of this id came to no call.
	Skipped(id uuid.UUID)
}

// RetryRoom bounds how many retries wait on a queue; the others wait in the outbox.
type RetryRoom interface {
	Free(ctx context.Context, queue string) bool
}

// Params make a Pipeline.
type Params struct {
	Log         *slog.Logger
	Loader      Loader
	Advancer    Advancer
	Outbox      Outbox
	Pacer       Pacer
	Sender      provider.Sender
	Gate        Gate
	RetryRoom   RetryRoom
	Templates   Templates
	Links       Links
	Metrics     *Metrics
	MaxAttempts int
	Backoff     email.Backoff
	// TTL is the time that an email of a mailing has from its first attempt on; until
	// then no deadline runs for it. A single email brings its own.
	TTL time.Duration
	// FeedbackWindow is how long feedback is waited for when the provider's answer is not
	// known; 0 = none will come.
	FeedbackWindow time.Duration
	// Sent is told how long each email took that the provider accepted, from its task's receipt
	// to its recorded result; nil if nobody wants to know.
	Sent func(took time.Duration)
	// Tracer makes spans of an attempt's steps.
	Tracer telemetry.Tracer
}

// Pipeline handles the tasks of the email queues. It is safe for concurrent use.
type Pipeline struct {
	Params
	bodies *bodies
	later  *later
}

// New makes a Pipeline.
func New(p Params) *Pipeline {
	return &Pipeline{Params: p, bodies: newBodies(p.Templates, p.Links), later: newLater()}
}

const (
	// callTimeout bounds the provider call.
	callTimeout = 30 * time.Second
	// turnPatience bounds the wait for the send rate of a task that has no token. It leaves room
	// for the call before the queue believes that the handler is lost.
	turnPatience = 45 * time.Second
	// leaseNeeded must be left of the claim right before the call, so that the call
	// cannot outlive it: its 30 s and one to write the answer down.
	leaseNeeded = callTimeout + time.Second
	// queueWait is the longest wait of a retry on the queue, where operators see it with its
	// reason. Longer ones wait in the outbox and leave the queue's room to others.
	queueWait = 30 * time.Second
	// lockedDelay is when the task of an email comes again that another transaction has
	// locked, such as that of a program that is moving or cancelling it.
	lockedDelay = time.Second
	// repeatDelay is the pause between two tries of a write that Postgres did not answer.
	repeatDelay = 250 * time.Millisecond
	// releaseDelay is how long an email that was given back waits in the outbox.
	releaseDelay = 5 * time.Second
	// outagePause and outageDelay are for a database that does not answer: how long a hand
	// rests, and when its task comes again.
	outagePause = time.Second
	outageDelay = 4 * time.Second
	// faultDelay is how long an email rests whose task met a fault of ours more than once.
	faultDelay = 30 * time.Second
	// longAgo is how long ago an email was taken whose return needs a wake-up: dispatchers look at
	// a lane again and again for a minute after they took from it, and their clock may differ from ours.
	// Emails that are due after foundAfter need none, since all lanes are listed that often.
	longAgo    = 45 * time.Second
	foundAfter = 30 * time.Second
	// keyDelay is how long a mailing's email waits for an operator to set the key that
	// its unsubscribe link needs: a mailing without a way out is not sent.
	keyDelay = time.Minute
)

// Handle is the queue's handler for one email task. It returns nil when the task
// has done its work, which includes finding out that there is none left to do. The end of
// ctx is a stop of the worker: a read or write that it cuts off is no fault, and the task
// goes back to the queue.
func (p *Pipeline) Handle(ctx context.Context, task queue.Task) error {
	begun := time.Now()
	err := p.handle(ctx, task)
	switch {
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || store.IsOutage(err)):
		return stopped()
	case err != nil && task.Retried > 0:
		return p.faultAgain(ctx, task, begun, err)
	}
	return err
}

// faultAgain lets an email rest in the outbox whose task met a fault of ours more than once.
// On the queue the tasks of such emails would take the window's room from other tenants.
func (p *Pipeline) faultAgain(ctx context.Context, task queue.Task, begun time.Time, err error) error {
	var (
		later *queue.RetryLater
		dead  *queue.Dead
	)
	id, parsing := uuid.Parse(task.ID)
	if errors.As(err, &later) || errors.As(err, &dead) || parsing != nil {
		return err
	}
	if locked, dropping := p.Outbox.DropTask(ctx, id, faultDelay); dropping != nil || locked {
		return err
	}
	telemetry.EmailLogger(p.Log, telemetry.EmailOf(task.ID, task.Payload)).Error("task failed again, the email rests", telemetry.State, email.EventReceived,
		telemetry.DurationMS, time.Since(begun).Milliseconds(), "delay", faultDelay.String(), "error", email.MaskText(err.Error()))
	return nil
}

func stopped() error { return &queue.RetryLater{Reason: "the worker stops"} }

func (p *Pipeline) handle(ctx context.Context, task queue.Task) error {
	received := time.Now()
	opening, opened := p.Tracer.Start(ctx, "load", telemetry.Internal)
	job, decoding := email.DecodeSendJob(task.Payload)
	turn := p.admitted(task, job)
	defer turn.giveBack()
	row, err := p.open(opening, task, job, decoding, received)
	opened.End()
	switch {
	case store.IsOutage(err):
		turn.giveBack()
		return p.sitOut(ctx)
	case row == nil || err != nil:
		return err
	}
	crashpoint.At(crashpoint.SendLoaded)
	a := newAttempt(row, job, task.Queue, received)
	log := a.logger(ctx, p.Log)
	if row.Probe && row.Status.Claimable() {
		defer p.skipped(a)
	}

	switch {
	case row.Status == email.Sent && !mayClaim(row.Status):
		p.alreadySent(ctx, log, a)
		return nil
	case !mayClaim(row.Status): // stopped, or in another worker's hands
		log.Debug("nothing to do", "status", row.Status)
		return nil
	case row.Expired:
		return p.expire(ctx, log, a)
	case !row.Due || !row.LaneOpen || !row.GateOpen:
		return p.dropTask(ctx, log, a, row.Status)
	case row.Suppressed != "":
		return p.suppress(ctx, log, a)
	}
	if row.MailingID.Valid {
		if p.Links.Keys.Empty() {
			log.Warn("UNSUBSCRIBE_KEY is not set, and an email of a mailing needs it", "delay", keyDelay.String())
			return p.rest(ctx, a, keyDelay)
		}
		if err := p.bodies.render(ctx, a); err != nil {
			return err
		}
	}

	if failed := validate(a, p.MaxAttempts); failed != nil {
		return p.refuse(ctx, log, a, failed)
	}
	a.reach(email.EventValidated)
	if err := p.awaitTurn(ctx, turn, a.recipients()); err != nil {
		return err
	}
	crashpoint.At(crashpoint.SendTurn)
	// From here on neither a stop nor the queue may interrupt: a claim that is left
	// half-way is an email that nobody may touch.
	ctx = context.WithoutCancel(ctx)
	claim, err := p.claim(ctx, a)
	switch {
	case err != nil:
		return err
	case claim.Locked:
		return p.rest(ctx, a, lockedDelay)
	case claim.Status == email.Sent && !isMine(claim):
		p.alreadySent(ctx, log, a)
		return nil
	case !isMine(claim):
		return p.dropTask(ctx, log, a, claim.Status)
	case time.Until(claim.LeaseUntil) < leaseNeeded:
		return p.release(log, a, slog.LevelWarn, "the lease is too short for the call", nil)
	}

	turn.use()
	receipt, err := p.call(ctx, a)
	_, recorded := p.Tracer.Start(ctx, "record", telemetry.Internal)
	defer recorded.End()
	if err != nil {
		return p.settle(log, a, asFailure(err))
	}
	return p.sent(log, a, receipt)
}

// call asks the provider, once.
func (p *Pipeline) call(ctx context.Context, a *attempt) (provider.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	a.called = time.Now()
	receipt, err := p.Sender.Send(ctx, a.message())
	crashpoint.At(crashpoint.SendAnswered)
	p.Metrics.called(time.Since(a.called), err)
	return receipt, err
}

// sitOut gives a task back while the database does not answer, not faster than one per
// second and worker goroutine: else the queue would deliver its tasks again and again for nothing.
func (p *Pipeline) sitOut(ctx context.Context) error {
	_ = service.Pause(ctx, outagePause) // a stop ends it, which is fine too
	return &queue.RetryLater{Delay: outageDelay, Reason: "the database does not answer"}
}

// expire ends an email whose deadline passed while it waited.
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

// skipped makes room for another probe if this one came to no call.
func (p *Pipeline) skipped(a *attempt) {
	if a.called.IsZero() {
		p.Gate.Skipped(a.row.ID)
	}
}

// resultAlreadySent is the result of a task whose email was sent before.
const resultAlreadySent = "ALREADY_SENT"

// alreadySent acknowledges the task of an email that was sent before. Completed tasks are
// not kept, so the log line is the task's result, also where the provider's id cannot be read.
func (p *Pipeline) alreadySent(ctx context.Context, log *slog.Logger, a *attempt) {
	id, err := p.Loader.SESMessageID(ctx, a.row.ID)
	if err != nil {
		log = log.With("error", email.MaskText(err.Error()))
	}
	log.Info("email already sent", telemetry.State, email.Sent, "status", resultAlreadySent, "sesMessageId", id)
}

// dropTask acknowledges a task whose email cannot be sent now: it came too early, its lane is
// closed, or the provider's gate is shut. The dispatcher acts when the email is due again. A
// PENDING email is the dispatcher's already.
func (p *Pipeline) dropTask(ctx context.Context, log *slog.Logger, a *attempt, status email.Status) error {
	log.Debug("not now", "status", status)
	if status != email.Enqueued && status != email.RetryScheduled {
		return nil
	}
	return p.rest(ctx, a, 0)
}

// rest acknowledges the task and leaves the email to the dispatcher, for some time at least.
func (p *Pipeline) rest(ctx context.Context, a *attempt, delay time.Duration) error {
	locked, err := p.Outbox.DropTask(ctx, a.row.ID, delay)
	switch {
	case locked:
		return p.rowLocked(ctx, a)
	case err != nil:
		return err
	}
	p.returned(ctx, a, delay)
	return nil
}

// returned wakes the dispatchers for an email that is theirs again and due after a delay, if they
// would not look at its lane in time.
func (p *Pipeline) returned(ctx context.Context, a *attempt, delay time.Duration) {
	if time.Since(a.task.EnqueuedAt) < longAgo || delay > foundAfter {
		return
	}
	lanes := []store.Lanes{{Company: a.row.CompanyID, Queue: a.queue, Mailing: a.row.MailingID.UUID}}
	if err := p.Outbox.WakeLanes(ctx, lanes); err != nil {
		p.Log.Debug("dispatchers not woken: they look by themselves", "error", err)
	}
}

// rowLocked looks at an email that another transaction has locked again when that one has
// had time to commit. The tasks of locked emails take no more of the window than other retries:
// one that finds no room is dropped, and the rescuer brings its email back. The note is committed
// before the task leaves the queue, so that the task is not counted as lost.
func (p *Pipeline) rowLocked(ctx context.Context, a *attempt) error {
	if !p.RetryRoom.Free(ctx, a.queue) {
		return p.Outbox.NoteDroppedTask(ctx, a.row.ID)
	}
	return &queue.RetryLater{Delay: lockedDelay, Reason: "its row is locked"}
}

// asFailure turns an error that breaks the provider's contract into the one
// verdict that is safe without knowing more.
func asFailure(err error) *provider.Failure {
	var f *provider.Failure
	if errors.As(err, &f) {
		return f
	}
	return &provider.Failure{
		Verdict: provider.Unknown, Code: "PROVIDER_ERROR", Category: provider.TransientError, Reason: err.Error(), Err: err,
	}
}

// jitter places a wait within the backoff's tolerance.
func jitter() float64 { return rand.Float64() }
