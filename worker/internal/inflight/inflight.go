// Package inflight limits how many emails a worker has in flight, and admits each before its task
// is taken from the queue, so that a task is active on the queue only while a worker processes it.
// The limit is fixed, or follows the rate and the measured latency. Only the worker's main package
// uses it.
package inflight

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
)

const (
	// round is how often the limit is adjusted, unless two latencies are longer: emails that
	// started together end together, and a shorter round would see all of them or none.
	round = 250 * time.Millisecond
	// longestRound bounds a round when calls time out.
	longestRound = 10 * time.Second
	// longestCall is the maximum time an accepted email is in flight: its call ends after 30 s. If
	// recording its result takes longer, that is not the provider's latency.
	longestCall = 32 * time.Second
	// beginTime is how long a taken task may take to reach its handler, usually microseconds. After
	// it the task counts as lost.
	beginTime = 30 * time.Second
	// smoothing is the weight of a round's latency.
	smoothing = 0.5
)

// Pacer limits the recipients per second to the provider's send rate.
type Pacer interface {
	Wait(ctx context.Context, recipients int) error
	Return(recipients int)
	// OwnRate is this worker's part of the rate.
	OwnRate() float64
}

// Params configure a Limiter.
type Params struct {
	Log   *slog.Logger
	Pacer Pacer
	// Fixed is the limit; 0 = the limit follows the rate, between Least and Most.
	Fixed       int
	Least, Most int
	// InFlight is called once per round with the mean number of emails in flight.
	InFlight func(emails int)
	Registry prometheus.Registerer
}

// Limiter limits the emails in flight. Its loop adjusts the limit. It is safe for concurrent use.
type Limiter struct {
	*service.Loop
	params Params
	slots  *slots
	now    func() time.Time

	mu   sync.Mutex // guards the next two fields
	sent int
	took time.Duration // total of those emails

	// The fields below are used by the loop only.
	rule     rule
	begun    time.Time // of the round
	settling bool      // a step up has not taken effect yet
	latency  time.Duration
}

// New makes a Limiter.
func New(p Params) *Limiter {
	limit := p.Fixed
	if limit == 0 {
		limit = p.Least
	}
	l := &Limiter{params: p, slots: newSlots(limit), now: time.Now, rule: rule{least: p.Least, most: p.Most, limit: limit}}
	l.begun = l.now()
	l.Loop = service.NewLoop(service.LoopParams{Log: p.Log, Interval: round, RunOnce: l.runOnce})
	p.Registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "worker_concurrency_limit", Help: "Maximum number of emails in flight in this worker: WORKER_CONCURRENCY, or what the rate needs at the measured latency.",
		}, func() float64 { return float64(l.Limit()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "worker_emails_in_flight", Help: "Emails in flight in this worker, including the task it is waiting for.",
		}, func() float64 {
			_, taken := l.slots.current()
			return float64(taken)
		}),
	)
	return l
}

// Limit is the current limit.
func (l *Limiter) Limit() int {
	limit, _ := l.slots.current()
	return limit
}

// Admit returns when a task may be taken: a slot is free and the rate allows one more recipient. It
// must be followed by exactly one call of Unused or Used. others is the total concurrency of the
// Servers before the caller's: see joins.
func (l *Limiter) Admit(ctx context.Context, others int) (admitted time.Time, err error) {
	if err := l.slots.acquire(ctx, others); err != nil {
		return time.Time{}, err
	}
	if err := l.params.Pacer.Wait(ctx, 1); err != nil {
		l.slots.release()
		<-ctx.Done() // the pacer may know earlier that it cannot admit the task in time
		return time.Time{}, err
	}
	return l.now(), nil
}

// Unused returns an admission: there was no task.
func (l *Limiter) Unused() {
	l.params.Pacer.Return(1)
	l.slots.unused()
}

// Used records that a task was taken. Begin and End of its handler follow.
func (l *Limiter) Used(admitted time.Time) { l.slots.use(admitted) }

// Begin records that a task's handler starts, and returns when the task was admitted; zero if
// unknown.
func (l *Limiter) Begin() (admitted time.Time) { return l.slots.begin() }

// End records that a task's handler has ended.
func (l *Limiter) End() { l.slots.release() }

// Sent records the time from an accepted email's take to its recorded result. Other emails say
// nothing about the latency: they end early or time out. A hanging call counts only once it is
// accepted: during an outage more emails in flight would only mean more unknown outcomes, and a
// window that delays other tenants afterwards.
func (l *Limiter) Sent(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	l.took += took
}

func (l *Limiter) runOnce(context.Context) (bool, error) {
	now := l.now()
	if n := l.slots.forget(now.Add(-beginTime)); n > 0 {
		l.params.Log.Warn("tasks were taken but never handled, the queue will redeliver them", "tasks", n)
	}
	l.params.InFlight(l.slots.mean())
	if l.params.Fixed > 0 {
		return false, nil
	}
	length := now.Sub(l.begun)
	if l.settling {
		// The effect of additional emails in flight shows when the first of them have ended.
		if length > min(l.latency, longestCall) {
			l.measured(length) // the emails sent meanwhile say nothing about the new limit
			l.begun, l.settling = now, false
		}
		return false, nil
	}
	if length < min(max(round, 2*max(l.latency, l.mean())), longestRound) {
		return false, nil
	}
	s := l.measured(length)
	l.begun = now
	before := l.rule.limit
	if l.rule = l.rule.next(s); l.rule.limit != before {
		l.slots.setLimit(l.rule.limit)
		l.settling = l.rule.from > 0
	}
	return false, nil
}

// mean is the mean latency of this round so far, 0 if nothing was sent.
func (l *Limiter) mean() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.took / time.Duration(max(l.sent, 1))
}

// measured returns the measurements of the round that ends now.
func (l *Limiter) measured(length time.Duration) sample {
	l.mu.Lock()
	sent, took := l.sent, l.took
	l.sent, l.took = 0, 0
	l.mu.Unlock()
	s := sample{
		rate: l.params.Pacer.OwnRate(), sent: float64(sent) / length.Seconds(),
		full: l.slots.fullTime() > length/2,
	}
	if sent > 0 {
		mean := took / time.Duration(sent)
		if l.latency == 0 {
			l.latency = mean
		}
		l.latency += time.Duration(smoothing * float64(mean-l.latency))
		s.latency = l.latency
	}
	return s
}
