package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"email-gateway/shared/blob"
	"email-gateway/shared/service"
	"email-gateway/shared/sesevent"
	"email-gateway/shared/steps"
	"email-gateway/shared/store"
	"email-gateway/shared/store/file"
	hooks "email-gateway/shared/store/webhook"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/attachment"
	"email-gateway/worker/internal/breaker"
	"email-gateway/worker/internal/config"
	"email-gateway/worker/internal/dbcheck"
	"email-gateway/worker/internal/feedback"
	"email-gateway/worker/internal/inflight"
	"email-gateway/worker/internal/maintenance"
	"email-gateway/worker/internal/pace"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/sqsqueue"
	"email-gateway/worker/internal/status"
	"email-gateway/worker/internal/unrecorded"
	"email-gateway/worker/internal/webhook"
)

// program has the resources of the parts.
type program struct {
	config   config.Worker
	log      *slog.Logger
	registry *prometheus.Registry
	traces   *telemetry.Tracing
	db       *store.Store
	hooksDB  *store.Store // for webhooks
	conn     asynqueue.Conn
	sender   emailProvider
	bucket   redis.UniversalClient // for send tokens and unrecorded results
	files    *blob.Bucket          // attachments
	monitor  *asynqueue.Monitor
}

// parts lists the program's parts in their start order. They stop in reverse order: first the drain; then all consumers, which
// concurrently stop taking work and finish the work that they have begun; last the HTTP listener and the trace exporter.
func (p program) parts() ([]service.Named, error) {
	c := p.config
	tracer := p.traces.Tracer()
	pacer := pace.New(p.bucket, c.SendRate)
	providerBreaker := breaker.New(breaker.Params{
		Log: p.log, Store: p.db, Instance: status.Instance(), Registry: p.registry, Codes: p.sender.BreakerCodes(), Reach: p.sender.Reach,
	})
	database := dbcheck.New(p.log, p.db.Confirm)
	loader, advancer := p.db.NewLoader(), p.db.NewAdvancer()
	limit := inflight.New(inflight.Params{
		Log: p.log, Pacer: pacer, Suspension: providerBreaker.Suspension(), Database: database,
		Fixed: c.Concurrency, Least: config.LeastConcurrency, Most: config.MostConcurrency, Registry: p.registry,
		InFlight: func(emails int) {
			loader.For(emails)
			advancer.For(emails)
		},
	})
	metrics := pipeline.NewMetrics(p.registry)
	line := pipeline.New(pipeline.Params{
		Log: p.log, Loader: loader, Advancer: advancer, Outbox: p.db, Pacer: pacer, Sender: p.sender, Breaker: providerBreaker,
		RetryRoom: asynqueue.NewRetryRoom(p.conn, p.bucket),
		Templates: p.db, Attachments: attachment.New(attachment.Params{
			Store: file.New(p.db.DB()), Bucket: p.files, Ring: c.CPFCNPJKeys, Concurrency: limit.Limit,
		}),
		Links:   pipeline.Links{Keys: c.UnsubscribeKeys, PublicURL: c.PublicURL},
		Metrics: metrics, MaxAttempts: c.MaxAttempts, Backoff: c.Backoff, TTL: c.TTL, FeedbackWindow: c.Window(),
		Sent: limit.Sent, Results: unrecorded.New(p.bucket), Database: database, Tracer: tracer,
	})
	consumer := asynqueue.NewConsumer(asynqueue.ConsumerConfig{
		Log: p.log, Conn: p.conn, Handler: queue.Traced(tracer, line.Handle), Concurrency: c.MaxConcurrency(), Admission: limit,
	})
	// AWS allows one such call per second for the whole account.
	reach := status.Seldom(time.Minute, p.sender.Reach)
	sends := func(context.Context) error { return providerBreaker.Suspension().Suspended() }
	probes := map[string]status.Probe{
		"redis":   consumer.Ping,
		"storage": p.files.PingRead,
		"ses":     func(ctx context.Context) error { return errors.Join(sends(ctx), reach(ctx)) },
	}
	taking := []service.Named{{Name: "emails", Service: consumer}}
	var takers consumers
	if c.RabbitMQURL != "" {
		bulk, all, err := p.bulkParts(database)
		if err != nil {
			return nil, err
		}
		taking, takers = append(taking, bulk...), all
		probes["rabbitmq"] = takers.ping
	}
	if c.EventsQueue != "" {
		reader, err := p.eventsReader(database, metrics.Steps())
		if err != nil {
			return nil, err
		}
		taking = append(taking, service.Named{Name: "SES events", Service: reader})
		probes["sesEvents"] = reader.Ping
	}
	if c.CPFCNPJKeys.Newest() != "" {
		taking = append(taking, service.Named{Name: "webhooks", Service: p.webhooks()})
	}
	drain := service.NewDrain(c.DrainDelay)
	ready := map[string]status.Probe{"database": p.db.Confirm, "redis": consumer.Ping, "ses": sends}
	mux := status.Handler(p.registry, ready)
	mux.Handle(asynqueue.MonitorPath+"/", p.monitor)
	return []service.Named{
		{Name: "traces", Service: p.traces},
		{Name: "clock", Service: p.db.NewClock(p.log)},
		{Name: "http", Service: service.NewHTTP(p.log, c.Addr, drain.Handler(mux))},
		{Name: "status", Service: status.NewReporter(status.Params{
			Log: p.log, Store: p.db, Service: "worker", Instance: status.Instance(), Probes: probes, Registry: p.registry, Wake: pacer.Changed(),
			Facts: func(context.Context) map[string]any {
				return map[string]any{
					"concurrency": limit.Needed(), "sendRate": pacer.Rate(), "consumers": takers.working(),
					maintenance.WindowFact: c.Window().Milliseconds(), "connections": p.db.DB().MaxConns() + p.hooksDB.DB().MaxConns(),
					"sesAccess": p.sender.Access(),
				}
			},
		})},
		{Name: "quota", Service: pace.NewQuota(pace.QuotaParams{
			Log: p.log, Pacer: pacer, Account: p.sender, Breaker: providerBreaker, Peers: peers(p.db), Registry: p.registry, Fallback: c.SendRate,
		})},
		{Name: "circuit breaker", Service: providerBreaker.Watch()},
		{Name: "results", Service: line},
		{Name: "concurrency", Service: limit},
		{Name: "consumers", Service: service.Group(taking...)},
		{Name: "drain", Service: drain},
	}, nil
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
		Log: p.log, Store: hooks.New(p.hooksDB.DB()), Ring: c.CPFCNPJKeys, Metrics: webhook.NewMetrics(p.registry),
		Sender:   webhook.NewSender(webhook.SenderParams{AllowPrivate: c.AllowPrivate}),
		Schedule: c.WebhookBackoff, ProbeAfter: c.ProbeInterval, DisableAfter: c.DisableAfter,
		Concurrency: c.WebhookConcurrency, ConcurrencyPerCompany: c.WebhookConcurrency / 4,
	})
}

// peers counts the live workers.
func peers(db *store.Store) pace.Peers {
	return func(ctx context.Context) (int, error) { return db.LiveProcesses(ctx, "worker") }
}
