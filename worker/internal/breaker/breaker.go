// Package breaker is the circuit breaker of the provider, shared by all workers through one row in
// Postgres. The pipeline reports the result of each call, and the loop that reads the provider's
// account reports whether the account accepts email. The breaker opens when no email can be sent,
// and sending is then parked except for probes, one email at a time; it closes when a probe
// succeeds. A process that cannot send although others can suspends itself instead.
//
// The claim in Postgres enforces the state; the dispatcher chooses the probes. The table and the
// metrics of the previous release call it a gate, which is shut while the breaker is open.
package breaker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	breakerstore "email-gateway/shared/store/breaker"
	"email-gateway/worker/internal/provider"
)

const (
	// watchInterval is the maximum age of the state in the metrics.
	watchInterval = time.Second
	// repeatDelay is the pause between two tries of a write during a database outage.
	repeatDelay = 250 * time.Millisecond
	// closeTime bounds the write that closes the breaker: the next probe would retry it.
	closeTime = 5 * time.Second
)

// Store stores the state.
type Store interface {
	Breaker(ctx context.Context) (breakerstore.Breaker, error)
	OpenBreaker(ctx context.Context, w breakerstore.Opening) (breakerstore.Opened, error)
	CloseBreaker(ctx context.Context, c breakerstore.Closing) (was breakerstore.LastOpening, closed bool, err error)
	RefusedKeys(ctx context.Context) ([]string, error)
	RefusalDisproved(ctx context.Context, keys []string) (bool, error)
	ForgetRefusals(ctx context.Context, keys []string) error
	OpenBreakerByAccount(ctx context.Context, reason, by string) (opened bool, err error)
	CloseBreakerByAccount(ctx context.Context, by string) (was breakerstore.LastOpening, closed bool, err error)
	SkipProbe(ctx context.Context, id uuid.UUID) error
}

// Params configure a Breaker.
type Params struct {
	Log      *slog.Logger
	Store    Store
	Instance string // this process, for operators
	Registry prometheus.Registerer
	// Codes are the codes of failures that may open the breaker: their counters start at 0, so that
	// rate() sees the first event.
	Codes []string
	// Reach makes a call to the provider that sends no email, and returns an error if the provider
	// does not work, with the outcome Unreadable if another server answers in its place. Optional.
	Reach func(ctx context.Context) error
}

// Breaker is safe for concurrent use, except for Account.
type Breaker struct {
	log          *slog.Logger
	store        Store
	instance     string
	metrics      *metrics
	run          run
	opening      sharedTry
	reachability reachability
	refusals     refusals
	suspension   Suspension
	refusal      handledRefusal // only used by Account
}

// Call is one call of the provider.
type Call struct {
	Email, Attempt uuid.UUID
	Company        uuid.UUID
	Sender         string // the From address
	Began          time.Time
	Pass           breakerstore.Pass // the breaker's state at the attempt's claim
	// Last means that the email has no attempt left after this one.
	Last bool
}

// New makes a Breaker.
func New(p Params) *Breaker {
	b := &Breaker{log: p.Log, store: p.Store, instance: p.Instance, reachability: reachability{reach: p.Reach}}
	b.metrics = newMetrics(p.Registry, p.Codes, b.suspension.Suspended)
	return b
}

// Watch returns the loop that updates the gauge, and what this process knows of the breaker and of refused senders.
func (b *Breaker) Watch() *service.Loop {
	return service.NewLoop(service.LoopParams{Log: b.log, Interval: watchInterval, RunOnce: b.watch})
}

func (b *Breaker) watch(ctx context.Context) (more bool, err error) {
	now, err := b.store.Breaker(ctx)
	if err != nil {
		b.metrics.unknown()
		return false, nil // /readyz and the pipeline report the outage
	}
	b.metrics.show(now)
	b.reachability.openedBy(now.Reason)
	keys, err := b.store.RefusedKeys(ctx)
	if err == nil {
		b.refusals.set(keys)
	}
	return false, nil
}

// Suspension decides when this process may take emails.
func (b *Breaker) Suspension() *Suspension { return &b.suspension }

// Answered reports that the provider accepted an email. If it was the probe, the breaker closes.
func (b *Breaker) Answered(c Call) {
	b.run.ended(c, nil, time.Now())
	b.reachability.readable(true)
	b.forgetRefusals(c)
	b.recordSuccess(c, true)
}

// Failed reports a failed call, and opens or closes the breaker accordingly. notCounted means that the
// attempt does not count: the email is a probe, or the breaker is open or was opened during the call,
// so the failure is already known. In a suspected outage the last attempt of an email does not count
// either: failures of a second email, and more failures than one email has attempts, show that the
// email is not the cause. The same applies if the provider does not answer the account call: a
// single email never opens the breaker, and does not fail in an outage. That call is skipped if the
// provider has answered another email since the previous failure: then only the account's API may
// be down.
//
// An ambiguous Park opens the breaker, unless one of the same sender or email has done so before, in any process, and
// the account has accepted another email since: then the attempt counts. A single sender that the account may not use
// does not stop the others.
//
// While this process is suspended, or if the failure suspends it, the breaker is unchanged, and no attempt counts. A failure that
// certainly concerns its sender alone suspends no process.
//
// Failed repeats its reads and writes until the database answers. But it does not wait for another
// session's lock on the breaker's row: the state is then unchanged, the email's own outcome applies
// (in a certain outage its attempt does not count), and the next failing call tries to open the
// breaker.
func (b *Breaker) Failed(c Call, f *provider.Failure) (notCounted bool) {
	diagnosed, answers := b.run.ended(c, f, time.Now())
	switch f.Outcome {
	case provider.Unreadable:
		b.reachability.readable(false)
	case provider.Failed:
		b.reachability.readable(true)
	}
	switch {
	case concernsProvider(f) && b.suspended(c, f):
		return f.Outcome != provider.Unreadable
	case f.Outcome == provider.Park, f.Outage && diagnosed == certain:
		return !b.open(c, f).Disproved || c.Pass.Probe
	case f.AccountWide: // the email that opens the breaker is recorded by its outcome
		return !b.open(c, f).Opened || c.Pass.Probe
	case f.Outage && (c.Pass.Probe || c.Last && (diagnosed == suspected || !answers && b.reachability.outage())):
		return true
	case f.Outage:
		return b.openedSince(c.Pass)
	case f.Outcome == provider.Unreadable && diagnosed == certain:
		b.open(c, f)
	case f.Outcome == provider.Failed && f.Category != provider.ValidationError:
		// The provider refused only this email, so it would accept others, unless it reports that the
		// account may not send. (With a ValidationError the email never reached it.)
		b.recordSuccess(c, false)
	}
	return false
}

// Skipped reports that the probe with this id ended without a call, so that the next one need not
// wait.
func (b *Breaker) Skipped(id uuid.UUID) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if err := b.store.SkipProbe(ctx, id); err != nil {
		b.log.Warn("cannot skip the probe, the next one follows after the pause", "error", err)
	}
}

// open opens the breaker. It reports whether this attempt opened it, and not an earlier one, or that the failure does not
// concern the account. If the write fails, the email is treated as the one that opened it.
func (b *Breaker) open(c Call, f *provider.Failure) (done breakerstore.Opened) {
	w := breakerstore.Opening{Reason: f.Code, By: b.instance, Attempt: c.Attempt, Pass: c.Pass, Company: uuid.NullUUID{UUID: c.Company, Valid: true}}
	if f.Ambiguous {
		w.Keys = c.refusalKeys()
	}
	shared, err := b.opening.do(func() error {
		return retryUntilAnswered(func(ctx context.Context) (err error) {
			done, err = b.store.OpenBreaker(ctx, w)
			return err
		})
	})
	switch {
	case errors.Is(err, breakerstore.ErrLocked):
		level := slog.LevelWarn
		if shared {
			level = slog.LevelDebug
		}
		b.log.Log(context.Background(), level, "cannot open the circuit breaker, retrying at the next failing call", "code", f.Code, "error", breakerstore.ErrLocked)
		return breakerstore.Opened{Opened: !b.openedSince(c.Pass)} // the lock may be held by an attempt whose commit takes longer
	case err != nil:
		b.log.Error("cannot open the circuit breaker", "code", f.Code, "error", err)
		return breakerstore.Opened{Opened: true} // the email's own outcome applies, as without a breaker
	case done.Opened:
		b.suspension.concerned(c.Pass.Openings+1, time.Now())
		b.refusals.add(w.Keys)
		b.metrics.countOpen(f.Code, 1)
		b.log.Error("circuit breaker opened: only a probe is sent every few seconds, until the provider accepts one",
			"code", f.Code, "category", f.Category, "reason", email.MaskText(f.Reason))
	case done.Probing && c.Pass.Probe && f.Outcome == provider.Park && !f.Ambiguous && !f.Withheld:
		// If another process closes the breaker, the rejection was this one's own. A failed connection or response proves less:
		// an outage that ends has a last failed probe too.
		b.suspension.concerned(c.Pass.Openings, time.Now())
	}
	return done
}

func (b *Breaker) openedSince(pass breakerstore.Pass) (opened bool) {
	err := retryUntilAnswered(func(ctx context.Context) error {
		now, err := b.store.Breaker(ctx)
		opened = now.OpenedSince(pass)
		return err
	})
	if err != nil {
		b.log.Error("cannot read the circuit breaker's state", "error", err)
		return false
	}
	return opened
}

// suspended reports whether this process is suspended, possibly from this failure on.
func (b *Breaker) suspended(c Call, f *provider.Failure) bool {
	if f.Ambiguous && b.suspension.begins(c, f) && b.disproved(c) {
		return false
	}
	suspended, begins := b.suspension.failed(c, f, time.Now())
	if begins {
		b.log.Error("worker suspended: the provider accepts emails of other workers but none of this one; it tries one email after 5 s, then at doubling intervals up to a minute",
			"code", f.Code, "category", f.Category, "reason", email.MaskText(f.Reason))
	}
	return suspended
}

// disproved reports whether a refusal of this call's sender or email is known not to concern the account.
func (b *Breaker) disproved(c Call) (yes bool) {
	err := retryUntilAnswered(func(ctx context.Context) (err error) {
		yes, err = b.store.RefusalDisproved(ctx, c.refusalKeys())
		return err
	})
	if err != nil {
		b.log.Error("cannot read the known refusals", "error", err)
	}
	return yes
}

// recordSuccess handles a call which shows that the provider accepts emails: it closes the breaker if the
// email was the probe, and ends this process's suspension. accepted is false if this email alone was refused.
func (b *Breaker) recordSuccess(c Call, accepted bool) {
	if b.suspension.recordSuccess(c) {
		b.log.Info("this worker sends again: the provider accepts its emails")
	}
	if c.Pass.Probe {
		b.close(breakerstore.Closing{By: b.instance, Pass: c.Pass, Accepted: accepted, Keys: c.refusalKeys()})
	}
}

func (b *Breaker) close(w breakerstore.Closing) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	was, closed, err := b.store.CloseBreaker(ctx, w)
	switch {
	case err != nil:
		b.log.Log(ctx, levelOf(err), "cannot close the circuit breaker, retrying at the next probe", "error", err)
	case closed:
		b.log.Info("circuit breaker closed: the provider answered the probe", "code", was.Reason, "parked", was.Duration.Round(time.Millisecond).String())
	}
}
