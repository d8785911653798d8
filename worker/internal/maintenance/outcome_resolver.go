package maintenance

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
	"email-gateway/shared/store"
)

// UnresolvedStore is what the resolver asks of the database.
type UnresolvedStore interface {
	UnresolvedOutcomes(ctx context.Context, limit int) ([]store.UnknownOutcome, error)
}

// OutcomeResolver ends the wait for the provider's feedback on emails in
// OUTCOME_UNKNOWN: no feedback proves nothing, so their delivery decides. Feedback that
// comes first makes them SENT, and they are not found here any more.
type OutcomeResolver struct {
	*service.Loop
	params   ResolverParams
	resolved prometheus.Counter
}

// ResolverParams make an OutcomeResolver.
type ResolverParams struct {
	Log      *slog.Logger
	Store    UnresolvedStore
	Outcomes Outcomes
	Registry prometheus.Registerer
}

// NewOutcomeResolver makes a resolver that is not running yet.
func NewOutcomeResolver(p ResolverParams) *OutcomeResolver {
	r := &OutcomeResolver{params: p, resolved: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "outbox_unresolved_outcomes_total", Help: "Emails whose outcome no feedback told in time.",
	})}
	p.Registry.MustRegister(r.resolved)
	r.Loop = service.NewLoop(service.LoopParams{
		Log: p.Log, Interval: rescueInterval, RunOnce: r.runOnce, ErrorDelay: rescueInterval,
	})
	return r
}

func (r *OutcomeResolver) runOnce(ctx context.Context) (more bool, err error) {
	unresolved, err := r.params.Store.UnresolvedOutcomes(ctx, rescueBatch)
	if err != nil || len(unresolved) == 0 {
		return false, err
	}
	n, err := r.params.Outcomes.end(ctx, unresolved, store.GuardUnresolved)
	if n > 0 {
		r.resolved.Add(float64(n))
		r.params.Log.Warn("no feedback came for emails of unknown outcome", "count", n)
	}
	return err == nil && len(unresolved) == rescueBatch, err
}
