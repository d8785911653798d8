package rabbitmq_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/rabbitmq"
)

// The numbers are the broker's, whatever this process did: main, both retry queues together, and
// the DLQ.
func TestQueueMetrics(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	p := s.publisher()
	// Two fail at once, the third is not taken.
	_, stop := s.consume(func(_ context.Context, tasks []queue.Task) []error {
		return []error{&queue.Dead{Reason: "a test"}}
	})
	for range 2 {
		s.publish(p)
	}
	s.expect(s.topology.DLQ.Name, 2)
	stop()
	s.publish(p)
	s.expect(s.topology.Main.Name, 1)
	registry := prometheus.NewRegistry()
	queueMetrics := rabbitmq.NewQueueMetrics(rabbitmq.QueueMetricsParams{
		Log: s.logger(), Publisher: p, Registry: registry, Pipelines: []rabbitmq.MeasuredPipeline{{Name: "mailing", Topology: s.topology}},
	})
	if err := queueMetrics.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the counts", func() bool {
		return shown(t, registry) == "mailing_queue_consumer_count 0, mailing_queue_size dlq 2, mailing_queue_size main 1, mailing_queue_size retry 0"
	})
	if err := queueMetrics.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// Without an answer of the broker the numbers are unknown: those of before would be wrong when other dispatchers report new ones.
func TestQueueMetrics_Unknown(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	p := s.publisher()
	s.publish(p)
	s.expect(s.topology.Main.Name, 1)
	registry := prometheus.NewRegistry()
	queueMetrics := rabbitmq.NewQueueMetrics(rabbitmq.QueueMetricsParams{
		Log: s.logger(), Publisher: p, Registry: registry, Pipelines: []rabbitmq.MeasuredPipeline{{Name: "mailing", Topology: s.topology}},
	})
	const unknown = "mailing_queue_consumer_count NaN, mailing_queue_size dlq NaN, mailing_queue_size main NaN, mailing_queue_size retry NaN"
	if got := shown(t, registry); got != unknown {
		t.Errorf("before the first round: %s", got)
	}
	for _, want := range []string{
		"mailing_queue_consumer_count 0, mailing_queue_size dlq 0, mailing_queue_size main 1, mailing_queue_size retry 0", unknown,
	} {
		if err := queueMetrics.Measure(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := shown(t, registry); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if err := p.Close(); err != nil { // the second round cannot connect
			t.Fatal(err)
		}
	}
}

func shown(t *testing.T, registry *prometheus.Registry) (text string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if text += f.GetName(); len(m.GetLabel()) > 0 {
				text += " " + m.GetLabel()[0].GetValue()
			}
			text += fmt.Sprintf(" %g, ", m.GetGauge().GetValue())
		}
	}
	return text[:max(len(text)-2, 0)]
}
