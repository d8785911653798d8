// Package inflight limits how many emails a worker has in flight. It admits each email before its task is taken from
// the queue, so that a task is active on the queue only while a worker processes it. The limit is fixed, or follows the
// rate and the measured latency. Only the worker's main package uses it.
package inflight

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
)

const (
	// round is the interval at which the limit is adjusted, unless two latencies are longer: emails that start together
	// end together, and a shorter round would see all of them or none.
	round = 250 * time.Millisecond
	// maxRound is the maximum length of a round, for when calls time out.
	maxRound = 10 * time.Second
	// maxCall is the maximum time that an accepted email is in flight, because its call ends after 30 s. Further
	// time for recording its result is not the provider's latency.
	maxCall = 32 * time.Second
	// beginTime is how long a taken task may take to reach its handler, which usually takes microseconds. After that
	// the task counts as lost.
	beginTime = 30 * time.Second
	// smoothing is the weight of the newest round in the mean latency.
	smoothing = 0.5
	// assumedLatency is what Needed assumes before the first email is sent. SES usually takes less.
	assumedLatency = 500 * time.Millisecond
	// forgetAfter is the time without an accepted email after which a higher latency is assumedLatency again: the calls of an
	// outage took up to 30 s, and a window of that size would delay other tenants' emails when the next mailing begins.
	forgetAfter = time.Minute
)

// Pacer limits the recipients per second to the provider's send rate.
type Pacer interface {
	Wait(ctx context.Context, recipients int) error
	Return(recipients int)
	// OwnRate is this worker's share of the rate.
	OwnRate() float64
}

// Suspension delays the emails of a worker whose calls of the provider fail while those of other workers succeed.
type Suspension interface {
	// Await returns when an email may be taken. Used or Unused follows.
	Await(ctx context.Context) error
	Used()
	Unused()
}

// Database says whether Postgres can be used.
type Database interface {
	// Await returns when it can, or with an error when ctx ends.
	Await(ctx context.Context) error
	// Suspect reports whether a statement has failed since Postgres last answered.
	Suspect() bool
}

// Params configure a Limiter.
type Params struct {
	Log   *slog.Logger
	Pacer Pacer
	// Suspension is asked before each email.
	Suspension Suspension
	// Database delays the admission of tasks that could not be processed. Optional.
	Database Database
	// Fixed is the limit; 0 = the limit follows the rate, between Min and Max.
	Fixed    int
	Min, Max int
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

	mu      sync.Mutex // guards the next three fields
	sent    int
	took    time.Duration // total latency of the sent emails
	latency time.Duration // smoothed; 0 = no email was sent. Only the loop writes it.

	// The fields below are used by the loop only.
	rule      rule
	startedAt time.Time // start of the round
	sentAt    time.Time // end of the last round in which an email was sent
	settling  bool      // a higher limit has not taken effect yet
}

// New makes a Limiter.
func New(p Params) *Limiter {
	limit := p.Fixed
	if limit == 0 {
		limit = p.Min
	}
	l := &Limiter{params: p, slots: newSlots(limit), now: time.Now, rule: rule{min: p.Min, max: p.Max, limit: limit}}
	l.startedAt = l.now()
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

// Limit returns the current limit.
func (l *Limiter) Limit() int {
	limit, _ := l.slots.current()
	return limit
}

// Needed returns the emails in flight that this worker's share of the rate needs, in seconds of that share: the
// measured latency with headroom, or less if the limit is lower. The queues' window has room for the average of all
// workers, so the minimum and the spare of the limit are not included: all workers together send no more than the rate,
// however many they are.
func (l *Limiter) Needed() time.Duration {
	l.mu.Lock()
	latency := cmp.Or(l.latency, assumedLatency)
	l.mu.Unlock()
	atLimit := float64(l.Limit()) / l.params.Pacer.OwnRate()
	return time.Duration(min(headroom*latency.Seconds(), atLimit) * float64(time.Second))
}

// Admit waits until a task may be taken: Postgres can be used, a slot is free, pending returns true, no suspension delays the
// task, and the rate allows one more recipient. The caller must then call Unused or Used exactly once. If pending returns false,
// Admit returns zero. others is the total concurrency of the Servers before the caller's: see joins.
func (l *Limiter) Admit(ctx context.Context, others int, pending func() bool) (admitted time.Time, err error) {
	db := l.params.Database
	if db == nil {
		return l.admit(ctx, others, pending)
	}
	for {
		if err := db.Await(ctx); err != nil {
			return time.Time{}, err
		}
		// A statement may fail while this admission waits for its slot and its token, which are then for others.
		admitted, err = l.admit(ctx, others, pending)
		if err != nil || admitted.IsZero() || !db.Suspect() {
			return admitted, err
		}
		l.params.Pacer.Return(1)
		l.params.Suspension.Unused()
		l.slots.release()
	}
}

// admit waits for a slot and, if a task may be pending, for the end of a suspension and for the rate.
func (l *Limiter) admit(ctx context.Context, others int, pending func() bool) (admitted time.Time, err error) {
	if err := l.slots.acquire(ctx, others); err != nil {
		return time.Time{}, err
	}
	if !pending() {
		l.slots.unused()
		return time.Time{}, nil
	}
	if err := l.params.Suspension.Await(ctx); err != nil {
		l.slots.release()
		return time.Time{}, err
	}
	if err := l.params.Pacer.Wait(ctx, 1); err != nil {
		l.params.Suspension.Unused()
		l.slots.release()
		<-ctx.Done() // the pacer may know earlier that it cannot admit the task in time
		return time.Time{}, err
	}
	return l.now(), nil
}

// Unused gives up an admission for which there was no task.
func (l *Limiter) Unused() {
	l.params.Pacer.Return(1)
	l.params.Suspension.Unused()
	l.slots.unused()
}

// Used records that a task was taken. Begin and End of its handler follow.
func (l *Limiter) Used(admitted time.Time) {
	l.params.Suspension.Used()
	l.slots.use(admitted)
}

// Begin records that a task's handler starts, and returns the time when the task was admitted, or zero if it is
// unknown.
func (l *Limiter) Begin() (admitted time.Time) { return l.slots.begin() }

// End records that a task's handler has ended.
func (l *Limiter) End() { l.slots.release() }

// Sent records the time from the receipt of an accepted email's task to its recorded result. Other emails do not
// measure the latency: they end early or time out. A hanging call counts only once it is accepted. During an outage
// more emails in flight would only cause more unknown outcomes, and a longer queue window that delays other tenants
// afterwards.
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
	length := now.Sub(l.startedAt)
	if l.settling {
		// The effect of a higher limit shows only after the first additional emails have ended.
		if length > min(l.latency, maxCall) {
			l.measured(length) // discard the emails sent meanwhile: they do not measure the new limit
			l.startedAt, l.settling = now, false
		}
		return false, nil
	}
	if length < min(max(round, 2*max(l.latency, l.mean())), maxRound) {
		return false, nil
	}
	s := l.measured(length)
	l.startedAt = now
	if l.params.Fixed > 0 {
		return false, nil
	}
	before := l.rule.limit
	if l.rule = l.rule.next(s); l.rule.limit != before {
		l.slots.setLimit(l.rule.limit)
		l.settling = l.rule.from > 0
	}
	return false, nil
}

// mean returns the mean latency of this round so far, or 0 if nothing was sent.
func (l *Limiter) mean() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.took / time.Duration(max(l.sent, 1))
}

// measured returns the measurements of the round that ends now.
func (l *Limiter) measured(length time.Duration) sample {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := sample{
		rate: l.params.Pacer.OwnRate(), sent: float64(l.sent) / length.Seconds(),
		atLimit: l.slots.timeAtLimit() > length/2,
	}
	if l.sent > 0 {
		mean := l.took / time.Duration(l.sent)
		before := cmp.Or(l.latency, mean)
		l.latency = before + time.Duration(smoothing*float64(mean-before))
		s.latency, l.sentAt = l.latency, l.now()
	} else if l.now().Sub(l.sentAt) > forgetAfter {
		l.latency = min(l.latency, assumedLatency)
	}
	l.sent, l.took = 0, 0
	return s
}
