package dispatcher

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/store/process"
)

// metrics are the dispatcher's metrics. The two with the prefix mailing_ keep the names that
// existing dashboards use.
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
			Name: "mailing_outbox_publish_duration_seconds", Help: "Duration of publishing one task.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8), // 0.1 ms to 1.6 s
		}),
		due: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_due_total", Help: "Due rows taken from the outbox.",
		}, queues),
		enqueued: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_enqueued_total", Help: "Rows whose task was enqueued or was already queued.",
		}, queues),
		postponed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_postponed_total", Help: "Rows released because their last task was being processed, the broker refused the new one, or it did not answer in time.",
		}, queues),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_lost_retries_total", Help: "Retries enqueued again because their task was more than 5 s overdue and no longer existed.",
		}, queues),
		rounds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "outbox_round_duration_seconds", Help: "Time from taking a batch to recording its results.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 12), // 1 ms to 2 s
		}, queues),
		tasks: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "queue_tasks", Help: "Tasks on a queue (ready, active, scheduled or retry), which is the used part of its window.",
		}, queues),
		window: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "queue_window_tasks", Help: "Maximum number of tasks on a queue.",
		}, queues),
		processes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gateway_processes", Help: "Dispatchers and workers that reported within 15 s.",
		}, []string{"service"}),
	}
	registry.MustRegister(m.publish, m.due, m.enqueued, m.postponed, m.lost, m.rounds, m.tasks, m.window, m.processes)
	return m
}

// queueMetrics are the metrics of one queue.
type queueMetrics struct {
	due, enqueued, postponed, lost prometheus.Counter
	rounds, publish                prometheus.Observer
	tasks, window                  prometheus.Gauge
}

func (m *metrics) forQueue(queue string) queueMetrics {
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

// depth sets the queue's depth and window.
func (q queueMetrics) depth(tasks, window int) {
	q.tasks.Set(float64(tasks))
	q.window.Set(float64(window))
}

// unknownDepth marks the depth as not measured.
func (q queueMetrics) unknownDepth() { q.tasks.Set(math.NaN()) }

// alive sets the number of live processes per service, or NaN if err is not nil.
func (m *metrics) alive(statuses []process.Status, err error) {
	count := map[string]int{"dispatcher": 0, "worker": 0}
	for _, s := range statuses {
		if s.Live() {
			count[s.Service]++
		}
	}
	for service, n := range count {
		m.processes.WithLabelValues(service).Set(known(n, err))
	}
}
