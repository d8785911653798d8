package main

import (
	"context"
	"log/slog"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
	"email-gateway/worker/internal/config"
	"email-gateway/worker/internal/mailing"
	"email-gateway/worker/internal/queue/rabbitmq"
)

// bulk has the resources that only bulk jobs need.
type bulk struct {
	publisher    *rabbitmq.Publisher
	queueMetrics *rabbitmq.QueueMetrics
}

// openBulk makes the resources for bulk jobs. It does not connect yet.
func openBulk(
	c config.Dispatcher, log *slog.Logger, identify func(context.Context) (uuid.UUID, error), registry prometheus.Registerer,
) (*bulk, error) {
	conn, err := rabbitmq.ParseURL(c.RabbitMQURL)
	if err != nil {
		return nil, err
	}
	conn = conn.WithInstallation(identify)
	mailings, people := rabbitmq.Mailing(), rabbitmq.Recipients(c.RetryTTL(), c.MaxRetries)
	publisher := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{Log: log, Conn: conn, Topologies: []rabbitmq.Topology{mailings, people}})
	return &bulk{
		publisher: publisher,
		queueMetrics: rabbitmq.NewQueueMetrics(rabbitmq.QueueMetricsParams{
			Log: log, Publisher: publisher, Registry: registry,
			Pipelines: []rabbitmq.MeasuredPipeline{{Name: "mailing", Topology: mailings}, {Name: "recipients", Topology: people}},
		}),
	}, nil
}

func (b *bulk) close() error { return b.publisher.Close() }

// mailingParts returns the loops for mailings. They also run without RabbitMQ: emails of existing mailings are still sent,
// counted and cancelled.
func (p program) mailingParts(advancer mailing.Advancer) []service.Named {
	c := p.config
	parts := []service.Named{
		{Name: "mailing recovery", Service: mailing.NewRecovery(mailing.RecoveryParams{
			Log: p.log, Store: p.db, Registry: p.registry, Interval: c.RecoveryInterval, StaleAfter: c.StaleAfter,
		})},
		{Name: "mailing entry actions", Service: mailing.NewEntryActionLoop(mailing.EntryActionLoopParams{
			Log: p.log, Store: p.db, Advancer: advancer, Registry: p.registry,
		})},
		{Name: "mailing counter", Service: mailing.NewCounter(mailing.CounterParams{Log: p.log, Store: p.db, Registry: p.registry})},
	}
	if p.bulk != nil {
		parts = append(parts, service.Named{Name: "queue metrics", Service: p.bulk.queueMetrics})
	}
	return parts
}
