package dispatcher

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/store"
)

// metrics are the dispatcher's own. The two that begin with mailing_ have the names
// that the gateway's dashboards have always used.
type metrics struct {
	publish   prometheus.Histogram
	due       *prometheus.CounterVec
	enqueued  *prometheus.CounterVec
	postponed *prometheus.CounterVec
	lost      *prometheus.CounterVec
	rounds    *prometheus.HistogramVec
	tasks     *prometheus.GaugeVec
	window    *prometheus.GaugeVec
	processes *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	queues := []string{"queue"}
	m := &metrics{
		publish: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "mailing_outbox_publish_duration_seconds", Help: "How long it takes to put one task on its queue.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8), // 0.1 ms to 1.6 s
		}),
		due: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_due_total", Help: "Rows taken from the outbox because they were due.",
		}, queues),
		enqueued: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_enqueued_total", Help: "Rows whose task was put on the queue, or stood there.",
		}, queues),
		postponed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_postponed_total", Help: "Rows released: their last task was in work, the broker refused the new one, or its answer did not come in time.",
		}, queues),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_lost_retries_total", Help: "Retries put on the queue once more because their task was 5 s late and did not exist any more.",
		}, queues),
		rounds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "outbox_round_duration_seconds", Help: "From taking a batch to the record of its outcome.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 12), // 1 ms to 2 s
		}, queues),
		tasks: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "queue_tasks", Help: "Tasks on a queue, ready, in work or waiting for their time: how much of its window is used.",
		}, queues),
		window: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "queue_window_tasks", Help: "How many tasks a queue is filled up to.",
		}, queues),
		processes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gateway_processes", Help: "Dispatchers and workers that have reported within 15 s.",
		}, []string{"service"}),
	}
	registry.MustRegister(m.publish, m.due, m.enqueued, m.postponed, m.lost, m.rounds, m.tasks, m.window, m.processes)
	return m
}

// queueMetrics are those of one queue.
type queueMetrics struct {
	due, enqueued, postponed, lost prometheus.Counter
	rounds, publish                prometheus.Observer
	tasks, window                  prometheus.Gauge
}

func (m *metrics) of(queue string) queueMetrics {
	return queueMetrics{
		due: m.due.WithLabelValues(queue), enqueued: m.enqueued.WithLabelValues(queue), postponed: m.postponed.WithLabelValues(queue),
		lost: m.lost.WithLabelValues(queue), rounds: m.rounds.WithLabelValues(queue), publish: m.publish,
		tasks: m.tasks.WithLabelValues(queue), window: m.window.WithLabelValues(queue),
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

// depth shows how full a queue is.
func (q queueMetrics) depth(tasks, window int) {
	q.tasks.Set(float64(tasks))
	q.window.Set(float64(window))
}

// unknownDepth shows that the queue could not be measured.
func (q queueMetrics) unknownDepth() { q.tasks.Set(math.NaN()) }

// alive shows how many processes there are of each service.
func (m *metrics) alive(statuses []store.ProcessStatus) {
	count := map[string]int{"dispatcher": 0, "worker": 0}
	for _, s := range statuses {
		if s.Live() {
			count[s.Service]++
		}
	}
	for service, n := range count {
		m.processes.WithLabelValues(service).Set(float64(n))
	}
}
