// Command worker takes tasks from the email queues and sends the emails. It runs asynq servers, the pipeline, the client of AWS
// SES, and an HTTP listener for health, metrics and the queue dashboard. With RabbitMQ it also expands mailings and imports
// recipients. Package config describes its environment variables.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"email-gateway/shared/blob"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/store/installation"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/config"
	"email-gateway/worker/internal/queue/asynqueue"
)

// grace is how long the parts may take to stop: 40 s for a running call of the consumer, and 10 s for the writes after it. The
// stop timeout of an orchestrator must be longer.
const grace = 50 * time.Second

// webhookConns is the maximum number of connections to Postgres for webhooks.
const webhookConns = 4

func main() { os.Exit(service.Main(command())) }

func command() service.Program {
	return service.Program{Name: "worker", Addr: addr, Serve: serve}
}

func addr(environ []string) (string, error) {
	c, err := config.ReadWorker(environ)
	return c.Addr, err
}

func serve(ctx context.Context, environ []string, logs io.Writer) (err error) {
	c, err := config.ReadWorker(environ)
	if err != nil {
		return err
	}
	log := telemetry.NewLogger(logs, "email-gateway-worker", c.Environment, c.LogLevel)
	asynqueue.LogRedis(log)
	traces, err := telemetry.NewTracing(ctx, log, "email-gateway-worker", c.Environment, c.TraceSettings)
	if err != nil {
		return err
	}

	conn, err := asynqueue.ParseURL(c.RedisURL)
	if err != nil {
		return err
	}
	sender, err := newProvider(ctx, c, traces.Tracer())
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, c.DatabaseURL, store.Options{Workers: c.StartConcurrency(), Pooled: c.Pooled, AllowUnreachable: true})
	if err != nil {
		return err
	}
	defer db.Close()
	webhookDB, err := store.Open(ctx, c.DatabaseURL, store.Options{MaxConns: webhookConns, Pooled: c.Pooled, AllowUnreachable: true})
	if err != nil {
		return err
	}
	defer webhookDB.Close()
	owner := installation.New(db.DB())
	conn = conn.WithInstallation(owner.ID, log)
	redis := conn.Client()
	defer func() { err = errors.Join(err, redis.Close()) }()
	monitor := asynqueue.NewMonitor(asynqueue.MonitorConfig{
		Conn: conn, User: c.MonitoringUser, Password: c.MonitoringPassword, Writable: c.MonitoringWritable, Proxies: c.TrustedProxies,
	})
	defer func() { err = errors.Join(err, monitor.Close()) }()

	storage, err := blob.Open(ctx, c.StorageURL, blob.Options{Owner: owner, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, storage.Close()) }()

	p := program{
		config: c, log: log, registry: telemetry.NewRegistry(), traces: traces, db: db, webhookDB: webhookDB, owner: owner, conn: conn, redis: redis,
		sender: sender, storage: storage, monitor: monitor,
	}
	parts, err := p.parts()
	if err != nil {
		return err
	}
	return service.Run(ctx, log, grace+c.DrainDelay, parts...)
}
