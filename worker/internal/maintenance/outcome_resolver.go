package maintenance

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/store/outbox"
)

// UnresolvedStore has the database operations of the resolver.
type UnresolvedStore interface {
	UnresolvedOutcomes(ctx context.Context, after dispatch.UnresolvedPlace, limit int, late time.Duration) (due []dispatch.UnknownOutcome, next dispatch.UnresolvedPlace, err error)
}

// unresolvedPage bounds a round. Two minutes of unreadable answers at 200 emails per second leave 24,000 emails, which take 25
// s to read while none is due. After a page with a due email, the next page is read immediately.
const unresolvedPage = 5000

// resolveInterval is how long the end of a feedback window may go unnoticed.
const resolveInterval = 5 * time.Second

// OutcomeResolver resolves emails in OUTCOME_UNKNOWN after their feedback window, according to their delivery policy. An email
// that gets feedback earlier becomes SENT and is not found here. If workers read SES events from a queue, one of them has to
// drain it after the window, or maxUndrained has to pass: what cut a worker off from SES mostly cuts it off from the queue too.
type OutcomeResolver struct {
	*service.Loop
	params   ResolverParams
	resolved prometheus.Counter
	place    dispatch.UnresolvedPlace
	queue    drain
}

// ResolverParams configure an OutcomeResolver.
type ResolverParams struct {
	Log      *slog.Logger
	Store    UnresolvedStore
	Outcomes Outcomes
	Registry prometheus.Registerer
	// Page is how many emails a round reads; 0 = unresolvedPage.
	Page int
}

// NewOutcomeResolver makes a resolver that is not running yet.
func NewOutcomeResolver(p ResolverParams) *OutcomeResolver {
	p.Page = cmp.Or(p.Page, unresolvedPage)
	r := &OutcomeResolver{params: p, resolved: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "outbox_unresolved_outcomes_total", Help: "Emails without feedback about their outcome within the window.",
	})}
	p.Registry.MustRegister(r.resolved)
	r.Loop = service.NewLoop(service.LoopParams{
		Log: p.Log, Interval: resolveInterval, RunOnce: r.runOnce, ErrorDelay: resolveInterval,
	})
	return r
}

func (r *OutcomeResolver) runOnce(ctx context.Context) (more bool, err error) {
	late, err := r.queue.late(ctx, r.params.Outcomes.Processes)
	if err != nil {
		return false, err
	}
	due, next, err := r.params.Store.UnresolvedOutcomes(ctx, r.place, r.params.Page, late)
	if err != nil {
		return false, err
	}
	r.place = next
	if len(due) == 0 {
		return false, nil
	}
	all, known, err := r.params.Outcomes.end(ctx, due, outbox.GuardUnresolved)
	if n := all - known; n > 0 {
		r.resolved.Add(float64(n))
		r.params.Log.Warn("no feedback for emails of unknown outcome", "count", n)
	}
	return err == nil && next != (dispatch.UnresolvedPlace{}), err
}
