package pace

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
)

// Peers counts the processes among which the rate is divided while Redis is away,
// this one included.
type Peers func(ctx context.Context) (int, error)

// quotaInterval is how often the account is asked: its answers change rarely, and
// the provider allows one such question per second for the whole account.
const quotaInterval = time.Minute

// quotaRetry is how soon it is asked again after it did not answer.
const quotaRetry = 10 * time.Second

// Limits are what the provider account may send.
type Limits struct {
	PerSecond float64 // recipients
	PerDay    float64 // in any 24 hours; negative = as many as one likes
	SentToday float64 // in the last 24 hours
}

// Account tells its limits.
type Account interface {
	Limits(ctx context.Context) (Limits, error)
}

// QuotaParams make the loop that keeps a pacer at the account's own rate.
type QuotaParams struct {
	Log      *slog.Logger
	Pacer    *Pacer
	Account  Account
	Peers    Peers
	Registry prometheus.Registerer
	// Fallback is the rate to go by while the account cannot be asked: an emulator may
	// not know the question.
	Fallback float64
}

// NewQuota makes the loop.
func NewQuota(p QuotaParams) *service.Loop {
	q := &quota{QuotaParams: p, metrics: newMetrics(p.Registry)}
	return service.NewLoop(service.LoopParams{Log: p.Log, Interval: quotaRetry, RunOnce: q.runOnce})
}

type quota struct {
	QuotaParams
	metrics *metrics
	unknown bool      // the account did not answer the last time
	known   time.Time // when it last did
}

func (q *quota) runOnce(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, quotaRetry)
	defer cancel()
	if q.unknown || time.Since(q.known) >= quotaInterval {
		rate := q.ask(ctx)
		q.Pacer.SetRate(rate)
		q.metrics.rate.Set(rate)
	}
	n, err := q.Peers(ctx)
	if err != nil {
		return false, err
	}
	q.Pacer.SetProcesses(n)
	return false, nil
}

// ask returns the rate to go by, and logs when it is another than before.
func (q *quota) ask(ctx context.Context) float64 {
	limits, err := q.Account.Limits(ctx)
	if err != nil || limits.PerSecond <= 0 {
		if !q.unknown {
			q.Log.Warn("send rate of the account unknown, using SES_MAX_SEND_RATE", "rate", q.Fallback, "error", err)
		}
		q.unknown = true
		q.metrics.forget()
		return q.Fallback
	}
	if q.unknown || limits.PerSecond != q.Pacer.Rate() {
		q.Log.Info("send rate of the account", "rate", limits.PerSecond)
	}
	q.unknown, q.known = false, time.Now()
	q.metrics.quota(limits)
	return limits.PerSecond
}
