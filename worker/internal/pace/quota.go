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

// startTime bounds the first question, for whose answer the program's start waits: an
// account that may not send is known before the first email is taken.
const startTime = 5 * time.Second

// Limits are what the provider account may send.
type Limits struct {
	PerSecond float64 // recipients
	PerDay    float64 // in any 24 hours; negative = as many as one likes
	SentToday float64 // in the last 24 hours
	// Refusal is the code of why the account accepts no email at all at the moment; "" if
	// it does.
	Refusal string
}

// Breaker is told what the account says of sending at all, before any email finds out.
type Breaker interface {
	Account(ctx context.Context, refusal string)
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
	Breaker  Breaker
	Peers    Peers
	Registry prometheus.Registerer
	// Fallback is the rate to go by while the account cannot be asked: an emulator may
	// not know the question.
	Fallback float64
}

// NewQuota makes the loop.
func NewQuota(p QuotaParams) *Quota {
	q := &Quota{params: p, metrics: newMetrics(p.Registry, p.Pacer.Rate), now: time.Now}
	q.Loop = service.NewLoop(service.LoopParams{Log: p.Log, Interval: quotaRetry, RunOnce: q.runOnce})
	return q
}

// Quota is the loop that asks the account.
type Quota struct {
	*service.Loop
	params  QuotaParams
	metrics *metrics
	now     func() time.Time
	unknown bool      // the account did not answer the last time
	asked   time.Time // when it was last asked
}

// Start asks the account before it returns, and then every minute.
func (q *Quota) Start(ctx context.Context, failed func(error)) error {
	first, cancel := context.WithTimeout(ctx, startTime)
	q.ask(first)
	cancel()
	return q.Loop.Start(ctx, failed)
}

func (q *Quota) runOnce(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, quotaRetry)
	defer cancel()
	wait := quotaInterval
	if q.unknown {
		wait = quotaRetry
	}
	if q.now().Sub(q.asked) > wait-quotaRetry/2 { // the loop's rounds do not fall on the second
		q.ask(ctx)
	}
	n, err := q.params.Peers(ctx)
	if err != nil {
		return false, err
	}
	q.params.Pacer.SetProcesses(n)
	return false, nil
}

func (q *Quota) ask(ctx context.Context) {
	q.asked = q.now()
	limits, err := q.params.Account.Limits(ctx)
	if err == nil {
		q.params.Breaker.Account(ctx, limits.Refusal)
	}
	rate := q.rate(limits, err)
	q.params.Pacer.SetRate(rate)
	q.metrics.rate.Set(rate)
}

// rate is the rate to go by. It is logged when it is another than before.
func (q *Quota) rate(limits Limits, err error) float64 {
	if err != nil || limits.PerSecond <= 0 {
		if !q.unknown {
			q.params.Log.Warn("send rate of the account unknown, using SES_MAX_SEND_RATE", "rate", q.params.Fallback, "error", err)
		}
		q.unknown = true
		q.metrics.forget()
		return q.params.Fallback
	}
	if q.unknown || limits.PerSecond != q.params.Pacer.FullRate() {
		q.params.Log.Info("send rate of the account", "rate", limits.PerSecond)
	}
	q.unknown = false
	q.metrics.quota(limits)
	return limits.PerSecond
}
