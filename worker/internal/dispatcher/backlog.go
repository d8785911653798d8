package dispatcher

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store/dispatch"
)

const (
	backlogInterval = 10 * time.Second
	// countShare bounds the load of counting, which takes seconds for millions of rows: the next count starts after countShare
	// times the duration of the last one. That is 5 % of the time of one connection.
	countShare = 20
	// expiringWithin is how long before its deletion an open dead letter is reported.
	expiringWithin = 24 * time.Hour
)

// backlogStore reads what backlog measures.
type backlogStore interface {
	CountAll(ctx context.Context) (dispatch.Backlog, error)
	CountExpiring(ctx context.Context, within time.Duration) (dispatch.ExpiringLetters, error)
	OldestDue(ctx context.Context) ([]dispatch.LaneAge, error)
	OldestErasure(ctx context.Context) (seconds float64, err error)
}

// backlog measures waiting rows and dead letters. All dispatchers measure the same values: use the maximum, not the sum.
type backlog struct {
	store  backlogStore
	ages   Ages
	log    *slog.Logger
	noBulk bool // the dispatcher publishes no bulk jobs
	unsent service.LogLimiter

	counted time.Time // when the next count is due

	pending, unknown, letters, oldestErasure prometheus.Gauge
	expiring                                 *prometheus.GaugeVec
	oldestDue                                *prometheus.GaugeVec
	oldestTask                               *prometheus.GaugeVec
}

// Kinds of lanes in the metrics.
const (
	kindSingle  = "single"
	kindMailing = "mailing"
)

func newBacklog(p Params) *backlog {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		g.Set(math.NaN()) // until the first measurement, because 0 would look healthy
		return g
	}
	b := &backlog{
		store: p.Store, ages: p.Ages, log: p.Log, noBulk: p.Bulk == nil,
		pending:       gauge("mailing_outbox_pending_count", "Outbox rows waiting for the dispatcher."),
		unknown:       gauge("outbox_outcome_unknown_count", "Emails whose provider outcome is unknown."),
		letters:       gauge("dead_letters_open_count", "Unresolved dead letters."),
		oldestErasure: gauge("person_erasures_oldest_seconds", "Age of the oldest incomplete erasure of a person; 0 if there is none."),
		expiring: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dead_letters_expiring_count", Help: "Unresolved dead letters that will be deleted within a day.",
		}, []string{"kind"}),
		oldestDue: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outbox_oldest_due_seconds", Help: "How long the oldest due row has waited for dispatch, in open lanes; 0 if none is due.",
		}, []string{"queue", "kind"}),
		oldestTask: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "queue_oldest_task_seconds", Help: "Age of the oldest ready task on the queue.",
		}, []string{"queue"}),
	}
	p.Registry.MustRegister(b.pending, b.unknown, b.letters, b.oldestErasure, b.expiring, b.oldestDue)
	if b.ages != nil {
		p.Registry.MustRegister(b.oldestTask)
	}
	return b
}

// measure does not log errors, because the feeders log the outage. A value that cannot be measured becomes NaN, since the last
// value would hide the outage.
func (b *backlog) measure(ctx context.Context) (more bool, err error) {
	ages, err := b.store.OldestDue(ctx)
	b.count(ctx, err != nil)
	oldest := everyKind(known(0.0, err))
	for _, a := range ages {
		kind := kindSingle
		if a.Mailing {
			kind = kindMailing
		}
		oldest[[2]string{a.Queue, kind}] = a.Seconds
		b.warnUnsent(a.Queue, a.Seconds)
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

// warnUnsent logs that bulk jobs wait which this dispatcher cannot publish, and no other one does.
func (b *backlog) warnUnsent(queue string, seconds float64) {
	if !b.noBulk || seconds < backlogInterval.Seconds() || !slices.Contains(email.BulkQueues(), queue) {
		return
	}
	if omitted, ok := b.unsent.Allow(queue); ok {
		b.log.Warn("bulk jobs are due, but RABBITMQ_URL is not set for this dispatcher", "queue", queue,
			"due", (time.Duration(seconds) * time.Second).String(), "omitted", omitted)
	}
}

// count counts the backlog if the pause after the last count is over. During a database outage it runs in every round and sets
// the values to NaN.
func (b *backlog) count(ctx context.Context, away bool) {
	start := time.Now()
	if start.Before(b.counted) && !away {
		return
	}
	n, err := b.store.CountAll(ctx)
	b.pending.Set(known(n.Pending, err))
	b.unknown.Set(known(n.Unknown, err))
	b.letters.Set(known(n.DeadLetters, err))
	soon, err := b.store.CountExpiring(ctx, expiringWithin)
	b.expiring.WithLabelValues("email").Set(known(soon.Emails, err))
	b.expiring.WithLabelValues("bulk").Set(known(soon.Bulk, err))
	erasure, err := b.store.OldestErasure(ctx)
	b.oldestErasure.Set(known(erasure, err))
	b.counted = start.Add(countShare * time.Since(start))
}

// known converts a value to a metric: NaN if err is not nil.
func known[T int | float64](value T, err error) float64 {
	if err != nil {
		return math.NaN()
	}
	return float64(value)
}

// everyKind returns the same age for every queue and kind, so that a kind without due rows does not
// keep its last value.
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
