// Package gate is the circuit breaker before the provider, which all workers share: one
// row in Postgres. The pipeline reports how each call ended, and the loop that reads the
// provider's account reports what the account allows. The breaker parks sending when no
// email can be sent any more, whichever comes next; sending resumes when a probe, the one
// email that passes meanwhile, is answered again.
//
// Who may pass is not decided here but by the claim, in Postgres; the dispatcher chooses
// the probes.
package gate

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/worker/internal/provider"
)

const (
	// watchInterval is how old the state in the metrics may be.
	watchInterval = time.Second
	// repeatDelay is the pause between two tries of a write that Postgres did not answer.
	repeatDelay = 250 * time.Millisecond
	// openTime bounds the write that opens the gate: the next probe will do it as well.
	openTime = 5 * time.Second
)

// Store keeps the row.
type Store interface {
	Gate(ctx context.Context) (store.Gate, error)
	ShutGate(ctx context.Context, w store.Shutting) (shut bool, err error)
	OpenGate(ctx context.Context, by string, p store.GatePass) (was store.Reopened, opened bool, err error)
	ShutGateByAccount(ctx context.Context, reason, by string) (shut bool, err error)
	OpenGateByAccount(ctx context.Context, by string) (was store.Reopened, opened bool, err error)
	SkipProbe(ctx context.Context, id uuid.UUID) error
}

// Params make a Gate.
type Params struct {
	Log      *slog.Logger
	Store    Store
	Instance string // this process, for operators
	Registry prometheus.Registerer
	// Codes are those of the failures that may shut the gate: their counters are shown from
	// the start, so that a rate sees the first of each.
	Codes []string
	// Reach asks the provider something that sends no email, and returns an error if it does not
	// work; nil = there is no such question.
	Reach func(ctx context.Context) error
}

// Gate is safe for concurrent use.
type Gate struct {
	log          *slog.Logger
	store        Store
	instance     string
	metrics      *metrics
	run          run
	shutting     sharedTry
	reachability reachability
	refused      string // code of the account's last refusal that was acted on; used by the account's loop alone
}

// Call is one call of the provider.
type Call struct {
	Email, Attempt uuid.UUID
	Pass           store.GatePass // how the attempt's claim met the gate
	// Last says that the email has no try left after this one.
	Last bool
}

// New makes a Gate.
func New(p Params) *Gate {
	return &Gate{
		log: p.Log, store: p.Store, instance: p.Instance, metrics: newMetrics(p.Registry, p.Codes), reachability: reachability{reach: p.Reach},
	}
}

// Watch is the loop that keeps the gauge up to date.
func (g *Gate) Watch() *service.Loop {
	return service.NewLoop(service.LoopParams{Log: g.log, Interval: watchInterval, RunOnce: g.watch})
}

func (g *Gate) watch(ctx context.Context) (more bool, err error) {
	now, err := g.store.Gate(ctx)
	if err != nil {
		return false, nil // /readyz and the pipeline tell of the outage
	}
	g.metrics.show(now)
	return false, nil
}

// Answered reports that the provider accepted an email. If that was the probe, sending
// resumes.
func (g *Gate) Answered(c Call) {
	g.run.ended(c, nil, time.Now())
	g.open(c.Pass)
}

// Failed reports a call that the provider did not accept, and does with the gate what
// follows from it. unspent says that the try does not count: the email is a probe, the
// gate is shut, or was shut while the call was under way, and no email pays twice for what
// one has found out already. Nor does an outage take an email's last try while it is only
// suspected: a second email, and more failures than one email has tries, say that the
// email is not the cause. So does a provider that does not answer about the account either: one
// email alone opens no breaker, and does not fail in an outage. The provider is not asked if it has
// answered another call since the failure before: then only the account's API may be away.
//
// It asks Postgres until there is an answer, as does the write that comes after it. But it does not wait for a session
// that has locked the gate's row: the gate is then as it was, the email's own verdict counts (in an
// outage that is certain its try does not), and the next call that fails tries to shut the gate.
func (g *Gate) Failed(c Call, f *provider.Failure) (unspent bool) {
	belief, answers := g.run.ended(c, f, time.Now())
	switch {
	case f.Verdict == provider.Park, f.Outage && belief == certain:
		g.shut(c, f)
		return true
	case f.AccountWide: // the email that shuts the gate pays, as its verdict says
		return !g.shut(c, f) || c.Pass.Probe
	case f.Outage && (c.Pass.Probe || c.Last && (belief == suspected || !answers && g.reachability.unreachable())):
		return true
	case f.Outage:
		return g.shutSince(c.Pass)
	case f.Verdict == provider.Unreadable && belief == certain:
		g.shut(c, f)
	case f.Verdict == provider.Failed && f.Category != provider.ValidationError:
		// It refused this one email, and so it would take others. (A ValidationError never
		// reached it.)
		g.open(c.Pass)
	}
	return false
}

// Skipped tells that the probe of this id came to nothing before the call, so that the
// next one need not wait.
func (g *Gate) Skipped(id uuid.UUID) {
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	defer cancel()
	if err := g.store.SkipProbe(ctx, id); err != nil {
		g.log.Warn("probe not skipped, the next one comes later", "error", err)
	}
}

// shut says whether this attempt shut the gate, and not another one before. If that cannot be written, the email is
// treated as the one that shut it.
func (g *Gate) shut(c Call, f *provider.Failure) (shut bool) {
	w := store.Shutting{Reason: f.Code, By: g.instance, Attempt: c.Attempt, Pass: c.Pass}
	shared, err := g.shutting.do(func() error {
		return insist(func(ctx context.Context) (err error) {
			shut, err = g.store.ShutGate(ctx, w)
			return err
		})
	})
	switch {
	case errors.Is(err, store.ErrGateLocked):
		level := slog.LevelWarn
		if shared {
			level = slog.LevelDebug
		}
		g.log.Log(context.Background(), level, "gate not shut, the next call that fails tries again", "code", f.Code, "error", store.ErrGateLocked)
		return !g.shutSince(c.Pass) // the lock may be that of an attempt whose commit takes longer
	case err != nil:
		g.log.Error("gate not shut", "code", f.Code, "error", err)
		return true // then the email's own verdict counts, as it would without a gate
	case shut:
		g.metrics.shuts.WithLabelValues(f.Code).Inc()
		g.log.Error("sending parked: nothing passes but a probe every few seconds, until the provider takes it",
			"code", f.Code, "category", f.Category, "reason", email.MaskText(f.Reason))
	}
	return shut
}

func (g *Gate) shutSince(pass store.GatePass) (shut bool) {
	err := insist(func(ctx context.Context) error {
		now, err := g.store.Gate(ctx)
		shut = now.ShutSince(pass)
		return err
	})
	if err != nil {
		g.log.Error("gate not read", "error", err)
		return false
	}
	return shut
}

func (g *Gate) open(pass store.GatePass) {
	if !pass.Probe {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	defer cancel()
	was, opened, err := g.store.OpenGate(ctx, g.instance, pass)
	switch {
	case err != nil:
		g.log.Log(ctx, levelOf(err), "gate not opened, the next probe tries again", "error", err)
	case opened:
		g.log.Info("sending goes on: the provider answered the probe", "code", was.Reason, "parked", was.After.Round(time.Millisecond).String())
	}
}

// levelOf is the level of a write of the gate that failed and that something repeats later.
func levelOf(err error) slog.Level {
	if errors.Is(err, store.ErrGateLocked) {
		return slog.LevelWarn
	}
	return slog.LevelError
}

// insist repeats what Postgres did not answer until it does, but does not wait for a locked row. The call is over: neither a
// stop nor the queue may keep the email from learning what became of it.
func insist(do func(ctx context.Context) error) error {
	ctx := context.Background()
	for {
		err := do(ctx)
		if !store.IsOutage(err) || errors.Is(err, store.ErrGateLocked) {
			return err
		}
		if err := service.Pause(ctx, repeatDelay); err != nil {
			return err
		}
	}
}
