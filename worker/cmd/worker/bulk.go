package main

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"email-gateway/shared/service"
	"email-gateway/shared/unsubscribe"
	"email-gateway/worker/internal/dbcheck"
	"email-gateway/worker/internal/mailing"
	"email-gateway/worker/internal/mx"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/rabbitmq"
	"email-gateway/worker/internal/recipient"
)

// bulkConsumers are the RabbitMQ consumers.
type bulkConsumers []*rabbitmq.Consumer

// ping reports whether all of them are consuming.
func (all bulkConsumers) ping(ctx context.Context) error {
	var errs []error
	for _, one := range all {
		errs = append(errs, one.Ping(ctx))
	}
	return errors.Join(errs...)
}

// working counts those that are consuming.
func (all bulkConsumers) working() (n int) {
	for _, one := range all {
		if one.Consuming() {
			n++
		}
	}
	return n
}

// bulkParts makes the consumers of mailing jobs and recipients.
func (p program) bulkParts(database *dbcheck.Check) (parts []service.Named, all bulkConsumers, err error) {
	c := p.config
	conn, err := rabbitmq.ParseURL(c.RabbitMQURL)
	if err != nil {
		return nil, nil, err
	}
	conn = conn.WithInstallation(p.owner.ID)
	domains, err := mx.New(mx.Params{Log: p.log, Resolver: c.MXResolver, Registry: p.registry})
	if err != nil {
		return nil, nil, err
	}
	jobs := mailing.New(mailing.Params{
		Log: p.log, Store: p.db, Database: database, Domains: domains, Metrics: mailing.NewMetrics(p.registry), Lead: c.Lead, StaleAfter: c.StaleAfter,
		UnsubscribeURL: func(company, mailing uuid.UUID, address string) string {
			link := unsubscribe.Link{Company: company, Mailing: mailing, Address: address}
			return unsubscribe.URL(c.PublicURL, c.UnsubscribeKeys.Seal(link))
		},
	})
	upserter := recipient.New(recipient.Params{
		Log: p.log, Store: p.db, Database: database, Metrics: recipient.NewMetrics(p.registry), Concurrency: c.ProcConcurrency, RetryDelay: c.RetryTTL(),
	})
	people := rabbitmq.Recipients(c.RetryTTL(), c.MaxRetries)
	for _, consumer := range []struct {
		name   string
		config rabbitmq.ConsumerConfig
	}{
		// One mailing at a time, so that other workers can take the others.
		{"mailing jobs", rabbitmq.ConsumerConfig{
			Topology: rabbitmq.Mailing(), Queue: rabbitmq.MailingJobs, Handler: jobs.Handle, Concurrency: 1, BatchSize: 1, Prefetch: 1,
		}},
		{"recipients", rabbitmq.ConsumerConfig{
			Topology: people, Queue: rabbitmq.RecipientsQueue, Handler: upserter.Handle,
			Concurrency: c.BatchConcurrency, BatchSize: c.BatchSize, BatchWait: c.BatchTimeout(), Prefetch: c.Prefetch(),
		}},
		{"recipients' dead letters", rabbitmq.ConsumerConfig{
			Topology: people, Queue: rabbitmq.RecipientsDLQ, Handler: upserter.HandleDead,
			Concurrency: 1, BatchSize: c.BatchSize, BatchWait: c.BatchTimeout(), Prefetch: c.BatchSize,
		}},
	} {
		consumer.config.Log, consumer.config.Conn, consumer.config.Database = p.log, conn, database
		consumer.config.Handler = queue.TracedBatch(p.traces.Tracer(), consumer.config.Handler)
		made, err := rabbitmq.NewConsumer(consumer.config)
		if err != nil {
			return nil, nil, err
		}
		parts, all = append(parts, service.Named{Name: consumer.name, Service: made}), append(all, made)
	}
	return parts, all, nil
}
