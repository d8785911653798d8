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

// measure is silent about what does not answer: the feeders tell of the outage.
func (b *backlog) measure(ctx context.Context) (more bool, err error) {
	if n, err := b.outbox.CountBacklog(ctx, backlogLimit); err == nil {
		b.pending.Set(float64(n.Pending))
		b.unknown.Set(float64(n.Unknown))
		b.letters.Set(float64(n.DeadLetters))
	}
	if ages, err := b.outbox.OldestDue(ctx, lost); err == nil {
		oldest := noneDue()
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
	}
	if b.ages == nil {
		return false, nil
	}
	for _, name := range email.Queues() {
		if age, err := b.ages.Oldest(ctx, name); err == nil {
			b.oldestTask.WithLabelValues(name).Set(age.Seconds())
		}
	}
	return false, nil
}

// noneDue has every kind of lane there is: one in which nothing is due any more must not
// keep its last value.
func noneDue() map[[2]string]float64 {
	oldest := make(map[[2]string]float64)
	for _, name := range email.Queues() {
		oldest[[2]string{name, kindSingle}] = 0
	}
	oldest[[2]string{email.QueueFor(email.MailingPriority), kindMailing}] = 0
	for _, name := range email.BulkQueues() {
		oldest[[2]string{name, kindSingle}] = 0
	}
	return oldest
}
