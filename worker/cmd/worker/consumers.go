package main

import (
	"context"
	"errors"

	"email-gateway/shared/service"
	"email-gateway/shared/sesevent"
	"email-gateway/shared/steps"
	webhookstore "email-gateway/shared/store/webhook"
	"email-gateway/worker/internal/dbcheck"
	"email-gateway/worker/internal/feedback"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/sqsqueue"
	"email-gateway/worker/internal/status"
	"email-gateway/worker/internal/webhook"
)

// consumers are the parts that take work.
type consumers struct {
	all    []service.Named
	emails *asynqueue.Consumer
	events *feedback.Reader // nil = not from a queue
	bulk   bulkConsumers
	probes map[string]status.Probe // of what they depend on
}

// newConsumers makes the consumers of emails and of all that the settings enable.
func (p program) newConsumers(s sending) (*consumers, error) {
	c := p.config
	emails := asynqueue.NewConsumer(asynqueue.ConsumerConfig{
		Log: p.log, Conn: p.conn, Handler: queue.Traced(p.traces.Tracer(), s.emails.Handle), Concurrency: c.MaxConcurrency(), Admission: s.limit,
	})
	made := &consumers{
		emails: emails, all: []service.Named{{Name: "emails", Service: emails}},
		probes: map[string]status.Probe{
			"redis":   emails.Ping,
			"storage": p.storage.PingRead,
			"ses":     func(ctx context.Context) error { return errors.Join(s.notSuspended(ctx), s.quota.Reach(ctx)) },
		},
	}
	if c.RabbitMQURL != "" {
		parts, bulk, err := p.bulkParts(s.database)
		if err != nil {
			return nil, err
		}
		made.all, made.bulk = append(made.all, parts...), bulk
		made.probes["rabbitmq"] = bulk.ping
	}
	if c.EventsQueue != "" {
		reader, err := p.eventsReader(s.database, s.metrics.Steps())
		if err != nil {
			return nil, err
		}
		made.all, made.events = append(made.all, service.Named{Name: "SES events", Service: reader}), reader
		made.probes["sesEvents"] = reader.Ping
	}
	if c.CPFCNPJKeys.Newest() == "" {
		p.log.Warn("CPF_CNPJ_KEYS is not set: this worker serves no webhook endpoint, and emails with attachments wait for another one")
	}
	// Also without keys: the endpoints that it cannot serve are then logged and counted.
	made.all = append(made.all, service.Named{Name: "webhooks", Service: p.webhooks()})
	return made, nil
}

// eventsReader makes the reader of the queue of SES events.
func (p program) eventsReader(database *dbcheck.Check, counter *steps.Counter) (*feedback.Reader, error) {
	queue, err := sqsqueue.New(context.Background(), p.config.EventsQueue, p.config.Region)
	if err != nil {
		return nil, err
	}
	recorder, err := sesevent.NewRecorder(p.log, p.db, counter, p.registry)
	if err != nil {
		return nil, err
	}
	return feedback.NewReader(feedback.Params{Log: p.log, Queue: queue, Recorder: recorder, Database: database}), nil
}

// webhooks returns the service that delivers events to webhooks. It has separate connections to Postgres, so that it does not
// delay emails.
func (p program) webhooks() *webhook.Service {
	c := p.config.Webhooks
	return webhook.New(webhook.Params{
		Log: p.log, Store: webhookstore.NewSenderStore(p.webhookDB.DB()), Ring: c.CPFCNPJKeys, Metrics: webhook.NewMetrics(p.registry),
		Sender:   webhook.NewSender(webhook.SenderParams{AllowPrivate: c.AllowPrivate, RefusedNetworks: c.RefusedNetworks}),
		Schedule: c.WebhookBackoff, ProbeAfter: c.ProbeInterval, DisableAfter: c.DisableAfter,
		Concurrency: c.WebhookConcurrency, ConcurrencyPerCompany: c.WebhookConcurrency / 4,
	})
}
