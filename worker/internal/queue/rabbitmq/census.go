package rabbitmq

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
)

// censusInterval is how old the counts in the metrics may be. A count costs a round trip
// per queue.
const censusInterval = 10 * time.Second

// Counted is a pipeline whose queues are counted, and the first word of its metrics.
type Counted struct {
	Name     string
	Topology Topology
}

// CensusParams make a Census.
type CensusParams struct {
	Log       *slog.Logger
	Publisher *Publisher // looks at the queues
	Registry  prometheus.Registerer
	Pipelines []Counted
}

// Census is the service that counts what stands on the queues, and who takes from them:
// the metrics <name>_queue_size{queue="main|retry|dlq"} and <name>_queue_consumer_count.
// It declares no queue.
type Census struct {
	*service.Loop
	publisher *Publisher
	pipelines []counters
}

// counters are one pipeline's.
type counters struct {
	Topology
	size      *prometheus.GaugeVec
	consumers prometheus.Gauge
}

// NewCensus makes a Census.
func NewCensus(p CensusParams) *Census {
	c := &Census{publisher: p.Publisher}
	for _, one := range p.Pipelines {
		counted := counters{
			Topology: one.Topology,
			size: prometheus.NewGaugeVec(prometheus.GaugeOpts{
				Name: one.Name + "_queue_size", Help: "Messages that wait on the queue of the pipeline in RabbitMQ (main), before their next try (retry), or gave up (dlq).",
			}, []string{"queue"}),
			consumers: prometheus.NewGauge(prometheus.GaugeOpts{
				Name: one.Name + "_queue_consumer_count", Help: "Consumers of the pipeline's main queue in RabbitMQ.",
			}),
		}
		p.Registry.MustRegister(counted.size, counted.consumers)
		c.pipelines = append(c.pipelines, counted)
	}
	c.Loop = service.NewLoop(service.LoopParams{Log: p.Log, Interval: censusInterval, RunOnce: c.runOnce})
	return c
}

// runOnce is silent about a broker that is away: those who publish tell of it. The sizes
// then stay as they were, and nobody consumes.
func (c *Census) runOnce(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, censusInterval)
	defer cancel()
	states, err := c.publisher.inspector.Inspect(ctx)
	if err != nil {
		for _, one := range c.pipelines {
			one.consumers.Set(0)
		}
		return false, nil
	}
	for _, one := range c.pipelines {
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
	c.size.WithLabelValues("main").Set(float64(main.Messages))
	c.size.WithLabelValues("retry").Set(float64(waiting))
	c.size.WithLabelValues("dlq").Set(float64(states[c.DLQ.Name].Messages))
	c.consumers.Set(float64(main.Consumers))
}
