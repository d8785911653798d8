package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/config"
	"email-gateway/worker/internal/pace"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/provider/ses"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/rabbitmq"
	"email-gateway/worker/internal/status"
)

// parts lists the program's parts in the order in which they start. They stop the
// other way round: first no more tasks are taken and those in hand are finished,
// last of all the process stops answering for its health.
func parts(
	c config.Worker, log *slog.Logger, db *store.Store, conn asynqueue.Conn, sender *ses.Sender,
	bucket redis.UniversalClient, monitor *asynqueue.Monitor,
) []service.Named {
	registry := telemetry.NewRegistry()
	pacer := pace.New(bucket, c.SendRate)
	line := pipeline.New(pipeline.Params{
		Log: log, Loader: db.NewLoader(), Advancer: db.NewAdvancer(), Outbox: db, Pacer: pacer, Sender: sender,
		Metrics: pipeline.NewMetrics(registry), MaxAttempts: c.MaxAttempts, Backoff: c.Backoff,
	})
	consumer := asynqueue.NewConsumer(asynqueue.ConsumerConfig{
		Log: log, Conn: conn, Handler: line.Handle, Concurrency: c.Concurrency,
	})
	ready := map[string]status.Probe{"database": db.Ping, "redis": consumer.Ping}
	mux := status.Handler(registry, ready)
	mux.Handle(asynqueue.MonitorPath+"/", monitor)
	return []service.Named{
		{Name: "http", Service: service.NewHTTP(log, c.Addr, mux)},
		{Name: "status", Service: status.NewReporter(status.Params{
			Log: log, Store: db, Service: "worker", Instance: status.Instance(), Probes: probes(c, consumer, sender),
			Facts: func() map[string]any { return map[string]any{"concurrency": c.Concurrency, "sendRate": pacer.Rate()} },
		})},
		{Name: "quota", Service: pace.NewQuota(log, pacer, sendRate{sender}, peers(db), c.SendRate)},
		{Name: "consumer", Service: consumer},
	}
}

// probes are the dependencies that /health tells of.
func probes(c config.Worker, consumer *asynqueue.Consumer, sender *ses.Sender) map[string]status.Probe {
	all := map[string]status.Probe{
		"redis": consumer.Ping,
		// AWS answers one such question per second for the whole account.
		"ses": status.Seldom(time.Minute, sender.Reach),
	}
	if c.RabbitMQURL != "" {
		all["rabbitmq"] = rabbitmq.Probe(c.RabbitMQURL)
	}
	return all
}

// peers counts the workers that are alive.
func peers(db *store.Store) pace.Peers {
	return func(ctx context.Context) (int, error) { return db.LiveProcesses(ctx, "worker") }
}

// sendRate is the account's send rate as package pace asks for it.
type sendRate struct{ sender *ses.Sender }

func (s sendRate) MaxSendRate(ctx context.Context) (float64, error) {
	account, err := s.sender.Account(ctx)
	return account.MaxSendRate, err
}
