package pace

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
)

// Peers counts the processes that share the rate, including this one.
type Peers func(ctx context.Context) (int, error)

// quotaInterval is how often the account is read. The account rarely changes, and the provider allows one such call per
// second for the whole account.
const quotaInterval = time.Minute

// quotaRetry is the interval after a failed call.
const quotaRetry = 10 * time.Second

// quotaJitter is the maximum delay of a call. Without it, processes that were started together would always call together, and
// the provider would answer only one of them.
const quotaJitter = 5 * time.Second

// knownFor is how long the last rate of the account is used while the account cannot be read. One failed call says nothing about
// the rate, and the workers share a bucket: another rate of one worker would be that of all.
const knownFor = time.Hour

// startTime limits the first call. The start of the program waits for it, so that an account that may not send is
// detected before the first email is taken.
const startTime = 5 * time.Second

// Limits are the limits of the provider account.
type Limits struct {
	PerSecond float64 // recipients
	PerDay    float64 // per 24 hours; negative = unlimited
	SentToday float64 // in the last 24 hours
	// Refusal is the code with which the account refuses all email; "" if it accepts email.
	Refusal string
	// Restriction says what restricts the account, although it may accept email; "" = nothing.
	Restriction string
	// UnderReview: the provider reviews the account, or has paused it after a review.
	UnderReview bool
	// Unreachable is why the provider counts as unreachable; nil if it answers. It is also set if the limits cannot be read.
	Unreachable error
}

// Breaker receives whether the account accepts email, before any email is sent.
type Breaker interface {
	Account(ctx context.Context, refusal string)
}

// Account reads the account's limits.
type Account interface {
	Limits(ctx context.Context) (Limits, error)
}

// QuotaParams configure a Quota.
type QuotaParams struct {
	Log      *slog.Logger
	Pacer    *Pacer
	Account  Account
	Breaker  Breaker
	Peers    Peers
	Registry prometheus.Registerer
	// Fallback is the rate used while the account cannot be read and no process has read it in the last hour: an
	// emulator may not support the call.
	Fallback float64
}

// NewQuota makes a Quota.
func NewQuota(p QuotaParams) *Quota {
	q := &Quota{params: p, metrics: newMetrics(p.Registry, p.Pacer.Rate), now: time.Now, answered: make(chan struct{})}
	q.Loop = service.NewLoop(service.LoopParams{Log: p.Log, Interval: quotaRetry, RunOnce: q.runOnce})
	return q
}

// Quota is the loop that reads the account and sets the pacer's rate.
type Quota struct {
	*service.Loop
	params  QuotaParams
	metrics *metrics
	now     func() time.Time
	unknown bool      // the last call failed
	asked   time.Time // when the account was last asked
	known   float64   // the account's last rate; 0 = none
	read    time.Time // when that was read
	// restriction is the account's last one.
	restriction string

	answered    chan struct{}         // closed after the first call
	unreachable atomic.Pointer[error] // of the last call
}

// Reach returns nil if the provider answered the last call. It makes no call: the limit of the account holds for all calls
// of all processes together. It waits for the first one.
func (q *Quota) Reach(ctx context.Context) error {
	select {
	case <-q.answered:
		return *q.unreachable.Load()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Start reads the account before it returns, and then every minute.
func (q *Quota) Start(ctx context.Context, failed func(error)) error {
	first, cancel := context.WithTimeout(ctx, startTime)
	q.ask(first)
	cancel()
	return q.Loop.Start(ctx, failed)
}

func (q *Quota) runOnce(ctx context.Context) (bool, error) {
	wait := quotaInterval
	if q.unknown {
		wait = quotaRetry
	}
	due := q.now().Sub(q.asked) > wait-quotaRetry/2 // the loop's rounds are not exact
	if due {
		if err := service.Pause(ctx, rand.N(quotaJitter)); err != nil {
			return false, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, quotaRetry)
	defer cancel()
	if due {
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
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return // the process stops
	}
	if q.unreachable.Swap(&limits.Unreachable) == nil {
		close(q.answered)
	}
	if err == nil {
		q.params.Breaker.Account(ctx, limits.Refusal)
		q.logRestriction(limits.Restriction)
	}
	rate := q.rate(ctx, limits, err)
	q.params.Pacer.SetRate(rate)
	q.metrics.rate.Set(rate)
}

// logRestriction logs when the account begins or ceases to be restricted.
func (q *Quota) logRestriction(now string) {
	switch {
	case now == q.restriction:
		return
	case now != "":
		q.params.Log.Warn("the account is restricted", "reason", now)
	default:
		q.params.Log.Info("the account is no longer restricted")
	}
	q.restriction = now
}

// rate returns the rate to use, and logs changes.
func (q *Quota) rate(ctx context.Context, limits Limits, err error) float64 {
	if err != nil || limits.PerSecond <= 0 {
		rate := q.params.Fallback
		if stored := q.params.Pacer.storedRate(ctx); stored > 0 {
			rate = stored
		} else if q.known > 0 && q.now().Sub(q.read) < knownFor {
			rate = q.known
		}
		if !q.unknown || rate != q.params.Pacer.FullRate() {
			q.params.Log.Warn("cannot read the account's send rate, using its last one or SES_MAX_SEND_RATE", "rate", rate, "error", err)
		}
		q.unknown = true
		q.metrics.forget()
		return rate
	}
	if q.unknown || limits.PerSecond != q.params.Pacer.FullRate() {
		q.params.Log.Info("send rate of the account", "rate", limits.PerSecond)
	}
	q.unknown, q.known, q.read = false, limits.PerSecond, q.now()
	if err := q.params.Pacer.storeRate(ctx, limits.PerSecond); err != nil {
		q.params.Log.Warn("cannot share the account's send rate with other workers", "error", err)
	}
	q.metrics.account(limits)
	return limits.PerSecond
}
