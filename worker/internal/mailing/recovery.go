package mailing

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
	mailingstore "email-gateway/shared/store/mailing"
)

// retryTimes is how long the retries of a job's message take: 10 s, 30 s.
const retryTimes = 40 * time.Second

// RecoveryStore has the database operations of the recovery.
type RecoveryStore interface {
	RecoverMailings(ctx context.Context, stale, lost time.Duration) (recovered []mailingstore.RecoveredMailing, more bool, err error)
	Wake(ctx context.Context) error
}

// RecoveryParams configure a Recovery.
type RecoveryParams struct {
	Log        *slog.Logger
	Store      RecoveryStore
	Registry   prometheus.Registerer
	Interval   time.Duration
	StaleAfter time.Duration // same as the Processor's
}

// Recovery creates a new job for mailings whose job has died, or whose message was lost with
// RabbitMQ's data. A message may only be delayed in a long queue; the second of the two then finds
// nothing to do.
type Recovery struct {
	*service.Loop
	params    RecoveryParams
	recovered *prometheus.CounterVec
}

// NewRecovery makes a recovery that is not running yet.
func NewRecovery(p RecoveryParams) *Recovery {
	r := &Recovery{params: p, recovered: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mailing_recoveries_total", Help: "Mailings that got a new job because theirs was silent (stale) or its message was lost (lost).",
	}, []string{"cause"})}
	for _, cause := range []string{"stale", "lost"} {
		r.recovered.WithLabelValues(cause)
	}
	p.Registry.MustRegister(r.recovered)
	r.Loop = service.NewLoop(service.LoopParams{
		Log: p.Log, Interval: p.Interval, RunOnce: r.runOnce, ErrorDelay: min(10*time.Second, p.Interval),
	})
	return r
}

func (r *Recovery) runOnce(ctx context.Context) (more bool, err error) {
	recovered, more, err := r.params.Store.RecoverMailings(ctx, r.params.StaleAfter, 2*r.params.StaleAfter+retryTimes)
	if err != nil || len(recovered) == 0 {
		return false, err
	}
	stale := 0
	for _, m := range recovered {
		if m.Stale {
			stale++
		}
	}
	r.recovered.WithLabelValues("stale").Add(float64(stale))
	r.recovered.WithLabelValues("lost").Add(float64(len(recovered) - stale))
	r.params.Log.Warn("mailings recovered", "count", len(recovered), "stale", stale)
	return more, r.params.Store.Wake(ctx)
}
