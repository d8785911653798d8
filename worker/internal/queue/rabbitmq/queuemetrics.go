package rabbitmq

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
)

// metricsInterval is the maximum age of the metrics. A measurement costs a round trip per queue.
const metricsInterval = 10 * time.Second

// MeasuredPipeline is a pipeline to measure, and the prefix of its metrics.
type MeasuredPipeline struct {
	Name     string
	Topology Topology
}

// QueueMetricsParams configure QueueMetrics.
type QueueMetricsParams struct {
	Log       *slog.Logger
	Publisher *Publisher // measures the queues
	Registry  prometheus.Registerer
	Pipelines []MeasuredPipeline
}

// QueueMetrics is the service that measures the queues and their consumers: the metrics
// <name>_queue_size{queue="main|retry|dlq"} and <name>_queue_consumer_count, NaN while the broker does not answer. It declares no
// queue.
type QueueMetrics struct {
	*service.Loop
	publisher *Publisher
	pipelines []counters
}

// counters are one pipeline's metrics.
type counters struct {
	Topology
	size      *prometheus.GaugeVec
	consumers prometheus.Gauge
}

// NewQueueMetrics makes QueueMetrics.
func NewQueueMetrics(p QueueMetricsParams) *QueueMetrics {
	c := &QueueMetrics{publisher: p.Publisher}
	for _, one := range p.Pipelines {
		counted := counters{
			Topology: one.Topology,
			size: prometheus.NewGaugeVec(prometheus.GaugeOpts{
				Name: one.Name + "_queue_size", Help: "Messages in the pipeline's RabbitMQ queues: ready (main), waiting for a retry (retry), or failed (dlq).",
			}, []string{"queue"}),
			consumers: prometheus.NewGauge(prometheus.GaugeOpts{
				Name: one.Name + "_queue_consumer_count", Help: "Consumers of the pipeline's main queue in RabbitMQ.",
			}),
		}
		counted.forget() // until the first measurement
		p.Registry.MustRegister(counted.size, counted.consumers)
		c.pipelines = append(c.pipelines, counted)
	}
	c.Loop = service.NewLoop(service.LoopParams{Log: p.Log, Interval: metricsInterval, RunOnce: c.runOnce})
	return c
}

// runOnce does not log a broker outage, because the publishers do.
func (c *QueueMetrics) runOnce(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, metricsInterval)
	defer cancel()
	states, err := c.publisher.inspector.Inspect(ctx)
	for _, one := range c.pipelines {
		if err != nil {
			one.forget()
			continue
		}
		one.show(states)
	}
	return false, nil
}

func (c counters) show(states map[string]QueueState) {
	waiting := 0
	for _, q := range c.Retries {
		waiting += states[q.Name].Messages
	}
	main := states[c.Main.Name]
	c.set(float64(main.Messages), float64(waiting), float64(states[c.DLQ.Name].Messages), float64(main.Consumers))
}

// forget makes the metrics NaN. The last numbers would hide those of other dispatchers, since queries take the maximum.
func (c counters) forget() { c.set(math.NaN(), math.NaN(), math.NaN(), math.NaN()) }

func (c counters) set(main, retry, dlq, consumers float64) {
	c.size.WithLabelValues("main").Set(main)
	c.size.WithLabelValues("retry").Set(retry)
	c.size.WithLabelValues("dlq").Set(dlq)
	c.consumers.Set(consumers)
}
