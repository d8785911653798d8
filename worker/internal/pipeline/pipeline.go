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
	"time"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/queue"
)

// Pipeline handles the tasks of the email queues. It is safe for concurrent use.
type Pipeline struct {
	Params
	bodies    *bodies
	postponer *postponer
	recorder  *recorder
	outcomes  *outcomes
	waiting   service.LogLimiter // of emails that wait for a setting or the storage
}

// New makes a Pipeline.
func New(p Params) *Pipeline {
	if p.Database == nil {
		p.Database = alwaysAvailable{}
	}
	made := &Pipeline{Params: p, bodies: newBodies(p.Templates)}
	made.postponer = &postponer{&made.Params}
	made.recorder = newRecorder(&made.Params, made.postponer)
	made.outcomes = &outcomes{&made.Params, made.recorder, made.postponer}
	return made
}

// Start implements service.Service: there is nothing to start.
func (p *Pipeline) Start(context.Context, func(error)) error { return nil }

// Stop waits for the results that are being recorded in the background. Call it after the consumer
// has stopped.
func (p *Pipeline) Stop(ctx context.Context) error { return p.recorder.wait(ctx) }

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

// delivery is a task from the queue, from its receipt on.
type delivery struct {
	queue.Task
	received time.Time
	attempt  int // its counted number; 0 until the email is loaded
}

// Handle is the queue's handler for one email task. It returns nil when the task is done, including
// when there is nothing left to do. If ctx ends, the worker is stopping: a read or write that this
// interrupts is not an error, and the task returns to the queue.
func (p *Pipeline) Handle(ctx context.Context, task queue.Task) (err error) {
	d := &delivery{Task: task, received: time.Now()}
	if task.Retried > 0 { // the first panic is the queue's, which logs its stack and retries the task
		defer func() {
			if cause := recover(); cause != nil {
				err = p.postponer.faultAgain(ctx, d, fmt.Errorf("panic: %v", cause))
			}
		}()
	}
	err = p.handle(ctx, d)
	if store.IsOutage(err) {
		p.Database.Failed()
	}
	switch {
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || store.IsOutage(err)):
		return stopped()
	case err != nil && task.Retried > 0:
		return p.postponer.faultAgain(ctx, d, err)
	}
	return err
}

// handle takes a task through all steps. A step that returns done has ended the task with err as its result.
func (p *Pipeline) handle(ctx context.Context, d *delivery) error {
	job, decodeErr := email.DecodeSendJob(d.Payload)
	permit := p.admitted(d.Task, job)
	defer permit.release()
	a, err := p.receive(ctx, d, job, decodeErr)
	if a == nil {
		return err
	}
	defer p.releaseHeld(a)
	log := a.logger(ctx, p.Log)
	if done, err := p.skip(ctx, log, a); done {
		return err
	}
	if done, err := p.prepare(ctx, log, a); done {
		return err
	}
	if err := p.awaitPermit(ctx, permit, a.recipients()); err != nil {
		return err
	}
	crashpoint.At(crashpoint.SendTurn)
	// From here on neither a stop nor the queue may interrupt: an abandoned claim blocks its email
	// until the lease ends.
	ctx = context.WithoutCancel(ctx)
	if done, err := p.claim(ctx, log, a); done {
		return err
	}
	permit.use()
	return p.send(ctx, log, a)
}

// receive loads the email and begins an attempt. The attempt is nil if the task ends here.
func (p *Pipeline) receive(ctx context.Context, d *delivery, job email.SendJob, decodeErr error) (*attempt, error) {
	loading, loaded := p.Tracer.Start(ctx, "load", telemetry.Internal)
	row, err := p.load(loading, d, job, decodeErr)
	loaded.End()
	switch {
	case store.IsOutage(err):
		return nil, &queue.RetryLater{Delay: outageDelay, Reason: "database unavailable"}
	case row == nil || err != nil:
		return nil, err
	}
	crashpoint.At(crashpoint.SendLoaded)
	a := newAttempt(row, job, d)
	d.attempt = a.counted()
	return a, nil
}

// releaseHeld releases what an attempt holds. If it was a probe and ended without a call, the circuit breaker may choose
// another one.
func (p *Pipeline) releaseHeld(a *attempt) {
	a.room.Release()
	if a.probe && a.called.IsZero() {
		p.Breaker.Skipped(a.row.ID)
	}
}

// prepare completes the content of the email and validates it.
func (p *Pipeline) prepare(ctx context.Context, log *slog.Logger, a *attempt) (done bool, err error) {
	if done, err := p.addLink(ctx, log, a); done {
		return true, err
	}
	if a.row.MailingID.Valid {
		if err := p.bodies.find(ctx, a); err != nil {
			return true, err
		}
	}
	if done, err := p.reserve(ctx, log, a, a.storedSize()); done {
		return true, err
	}
	if err := p.loadBody(ctx, a); err != nil {
		return true, err
	}
	if failed := validate(a, p.MaxAttempts); failed != nil {
		return true, p.refuse(ctx, log, a, failed)
	}
	if done, err := p.reserveRendered(ctx, log, a); done {
		return true, err
	}
	a.addText()
	if done, err := p.loadAttachments(ctx, log, a); done {
		return true, err
	}
	a.reach(email.EventValidated)
	return false, nil
}

// send calls the provider and records the result.
func (p *Pipeline) send(ctx context.Context, log *slog.Logger, a *attempt) error {
	receipt, err := p.call(ctx, a)
	a.room.Release() // the result may be recorded much later
	_, recorded := p.Tracer.Start(ctx, "record", telemetry.Internal)
	defer recorded.End()
	if err != nil {
		return p.outcomes.recordFailure(log, a, asFailure(err))
	}
	return p.outcomes.sent(log, a, receipt)
}

// call makes one provider call, unless the circuit breaker withholds it.
func (p *Pipeline) call(ctx context.Context, a *attempt) (provider.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	a.called = time.Now()
	defer a.forgetContent()
	if withheld := p.Breaker.Withhold(a.call(p.MaxAttempts)); withheld != nil {
		return provider.Receipt{}, withheld
	}
	receipt, err := p.Sender.Send(ctx, a.message())
	crashpoint.At(crashpoint.SendAnswered)
	p.Metrics.called(time.Since(a.called), err)
	return receipt, err
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
