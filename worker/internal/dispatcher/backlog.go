package dispatcher

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
)

const (
	backlogInterval = 10 * time.Second
	// backlogLimit is the highest backlog that the metrics tell. Counting this far
	// takes some tens of milliseconds.
	backlogLimit = 200_000
)

// backlog measures what waits. Several dispatchers measure the same: the greatest of
// their values counts, not the sum.
type backlog struct {
	outbox Outbox
	ages   Ages

	pending, unknown, letters prometheus.Gauge
	oldestDue                 *prometheus.GaugeVec
	oldestTask                *prometheus.GaugeVec
}

// Kinds of lanes, as the metrics name them.
const (
	kindSingle  = "single"
	kindMailing = "mailing"
)

func newBacklog(p Params) *backlog {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		g.Set(math.NaN()) // until it was measured: 0 would be good news
		return g
	}
	b := &backlog{
		outbox: p.Outbox, ages: p.Ages,
		pending: gauge("mailing_outbox_pending_count", "Outbox rows that wait for the dispatcher, 200000 at most."),
		unknown: gauge("outbox_outcome_unknown_count", "Emails of which nobody knows yet whether the provider took them, 200000 at most."),
		letters: gauge("dead_letters_open_count", "Dead letters that nobody has resolved, 200000 at most."),
		oldestDue: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outbox_oldest_due_seconds", Help: "How long the row has been due that was not dispatched for longest, in lanes that nobody holds; 0 if none is due.",
		}, []string{"queue", "kind"}),
		oldestTask: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "queue_oldest_task_seconds", Help: "How long the oldest task has stood on the queue without being taken.",
		}, []string{"queue"}),
	}
	p.Registry.MustRegister(b.pending, b.unknown, b.letters, b.oldestDue)
	if b.ages != nil {
		p.Registry.MustRegister(b.oldestTask)
	}
	return b
}

// measure is silent about what does not answer: the feeders tell of the outage. What could
// not be measured is NaN, since the last value would go on being good news.
func (b *backlog) measure(ctx context.Context) (more bool, err error) {
	n, err := b.outbox.CountBacklog(ctx, backlogLimit)
	b.pending.Set(known(n.Pending, err))
	b.unknown.Set(known(n.Unknown, err))
	b.letters.Set(known(n.DeadLetters, err))

	ages, err := b.outbox.OldestDue(ctx)
	oldest := everyKind(known(0.0, err))
	for _, a := range ages {
		kind := kindSingle
		if a.Mailing {
			kind = kindMailing
		}
		oldest[[2]string{a.Queue, kind}] = a.Seconds
	}
	for labels, seconds := range oldest {
		b.oldestDue.WithLabelValues(labels[:]...).Set(seconds)
	}
	if b.ages == nil {
		return false, nil
	}
	for _, name := range email.Queues() {
		age, err := b.ages.Oldest(ctx, name)
		b.oldestTask.WithLabelValues(name).Set(known(age.Seconds(), err))
	}
	return false, nil
}

// known is a value as a metric, NaN if err kept it from being measured.
func known[T int | float64](value T, err error) float64 {
	if err != nil {
		return math.NaN()
	}
	return float64(value)
}

// everyKind gives each kind of lane there is the same age: one in which nothing is due
// any more must not keep its last value.
func everyKind(seconds float64) map[[2]string]float64 {
	oldest := make(map[[2]string]float64)
	for _, name := range email.Queues() {
		oldest[[2]string{name, kindSingle}] = seconds
	}
	oldest[[2]string{email.QueueFor(email.MailingPriority), kindMailing}] = seconds
	for _, name := range email.BulkQueues() {
		oldest[[2]string{name, kindSingle}] = seconds
	}
	return oldest
}
