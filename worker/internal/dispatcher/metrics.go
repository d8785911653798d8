package dispatcher

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the dispatcher's own. The two that begin with mailing_ have the names
// that the gateway's dashboards have always used.
type metrics struct {
	pending   prometheus.Gauge
	publish   prometheus.Histogram
	due       *prometheus.CounterVec
	enqueued  *prometheus.CounterVec
	postponed *prometheus.CounterVec
	rounds    *prometheus.HistogramVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	queues := []string{"queue"}
	m := &metrics{
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mailing_outbox_pending_count", Help: "Emails that wait for the dispatcher, 200000 at most.",
		}),
		publish: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "mailing_outbox_publish_duration_seconds", Help: "How long it takes to put one task on its queue.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8), // 0.1 ms to 1.6 s
		}),
		due: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_due_total", Help: "Emails taken from the outbox because they were due.",
		}, queues),
		enqueued: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_enqueued_total", Help: "Emails whose task was put on the queue, or stood there.",
		}, queues),
		postponed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_postponed_total", Help: "Emails left for later: their last task was in work, or the broker refused the new one.",
		}, queues),
		rounds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "outbox_round_duration_seconds", Help: "From taking a batch to its commit.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 12), // 1 ms to 2 s
		}, queues),
	}
	registry.MustRegister(m.pending, m.publish, m.due, m.enqueued, m.postponed, m.rounds)
	return m
}

// queueMetrics are those of one queue.
type queueMetrics struct {
	due, enqueued, postponed prometheus.Counter
	rounds, publish          prometheus.Observer
}

func (m *metrics) of(queue string) queueMetrics {
	return queueMetrics{
		due: m.due.WithLabelValues(queue), enqueued: m.enqueued.WithLabelValues(queue), postponed: m.postponed.WithLabelValues(queue),
		rounds: m.rounds.WithLabelValues(queue), publish: m.publish,
	}
}

func (q queueMetrics) round(taken int, took time.Duration) {
	if taken > 0 {
		q.due.Add(float64(taken))
		q.rounds.Observe(took.Seconds())
	}
}

func (q queueMetrics) done(enqueued, postponed int) {
	q.enqueued.Add(float64(enqueued))
	q.postponed.Add(float64(postponed))
}

func (q queueMetrics) published(took time.Duration) { q.publish.Observe(took.Seconds()) }
