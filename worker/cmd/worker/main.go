// Command worker takes tasks from the email queues and sends them: asynq servers,
// the pipeline, AWS SES, and an HTTP listener for its health, metrics and the queue
// dashboard. Its environment is described in package config.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
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

// grace is how long the parts have to end: the consumer's 40 s for a call under way
// and the writes behind it. Whoever stops the process must wait for longer.
const grace = 50 * time.Second

func main() {
	healthcheck := flag.Bool("healthcheck", false, "ask the worker at WORKER_ADDR whether it lives")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Environ(), os.Stderr, *healthcheck); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, environ []string, logs io.Writer, healthcheck bool) (err error) {
	c, err := config.ReadWorker(environ)
	if err != nil {
		return err
	}
	if healthcheck {
		return service.Healthcheck(ctx, c.Addr)
	}
	log := telemetry.NewLogger(logs, "email-gateway-worker", c.Environment, c.LogLevel)
	asynqueue.LogRedis(log)

	conn, err := asynqueue.ParseURL(c.RedisURL)
	if err != nil {
		return err
	}
	sender, err := ses.New(ctx, ses.Config{
		Region: c.Region, Endpoint: c.Endpoint, ConfigurationSet: c.ConfigurationSet, Concurrency: c.Concurrency,
	})
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, c.DatabaseURL, store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	bucket := conn.Client()
	defer func() { err = errors.Join(err, bucket.Close()) }()
	monitor := asynqueue.NewMonitor(asynqueue.MonitorConfig{
		Conn: conn, User: c.MonitoringUser, Password: c.MonitoringPassword, Writable: c.MonitoringWritable,
	})
	defer func() { err = errors.Join(err, monitor.Close()) }()

	return service.Run(ctx, log, grace, parts(c, log, db, conn, sender, bucket, monitor)...)
}

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
