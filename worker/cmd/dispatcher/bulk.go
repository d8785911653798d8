package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/blob"
	"email-gateway/shared/service"
	"email-gateway/worker/internal/config"
	"email-gateway/worker/internal/mailing"
	"email-gateway/worker/internal/maintenance"
	"email-gateway/worker/internal/queue/rabbitmq"
)

// bulk is what only bulk work needs: RabbitMQ, and the files of mailings.
type bulk struct {
	publisher *rabbitmq.Publisher
	census    *rabbitmq.Census
	bucket    *blob.Bucket
}

// openBulk connects to nothing yet.
func openBulk(ctx context.Context, c config.Dispatcher, log *slog.Logger, registry prometheus.Registerer) (*bulk, error) {
	conn, err := rabbitmq.ParseURL(c.RabbitMQURL)
	if err != nil {
		return nil, err
	}
	bucket, err := blob.Open(ctx, c.StorageURL)
	if err != nil {
		return nil, err
	}
	mailings, people := rabbitmq.Mailing(), rabbitmq.Recipients(c.RetryTTL(), c.MaxRetries)
	publisher := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{Log: log, Conn: conn, Topologies: []rabbitmq.Topology{mailings, people}})
	return &bulk{
		bucket:    bucket,
		publisher: publisher,
		census: rabbitmq.NewCensus(rabbitmq.CensusParams{
			Log: log, Publisher: publisher, Registry: registry,
			Pipelines: []rabbitmq.Counted{{Name: "mailing", Topology: mailings}, {Name: "recipients", Topology: people}},
		}),
	}, nil
}

func (b *bulk) close() error { return errors.Join(b.publisher.Close(), b.bucket.Close()) }

// mailingParts are the loops that look after mailings. They go on where RabbitMQ was
// taken away: what has become emails is still sent, counted and cancelled.
func (p program) mailingParts(advancer mailing.Advancer) []service.Named {
	c := p.config
	parts := []service.Named{
		{Name: "mailing recovery", Service: mailing.NewRecovery(mailing.RecoveryParams{
			Log: p.log, Store: p.db, Registry: p.registry, Interval: c.RecoveryInterval, StaleAfter: c.StaleAfter,
		})},
		{Name: "mailing settler", Service: mailing.NewSettler(mailing.SettlerParams{
			Log: p.log, Store: p.db, Advancer: advancer, Registry: p.registry, TTL: c.TTL,
		})},
		{Name: "mailing counter", Service: mailing.NewCounter(mailing.CounterParams{Log: p.log, Store: p.db, Registry: p.registry})},
	}
	if p.bulk != nil {
		parts = append(parts, service.Named{Name: "census", Service: p.bulk.census}, service.Named{Name: "orphan sweeper", Service: maintenance.NewOrphanSweeper(maintenance.OrphanSweeperParams{
			Log: p.log, Blobs: p.bulk.bucket, Mailings: p.db, Registry: p.registry,
		})})
	}
	return parts
}
