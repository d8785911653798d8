// Command worker takes tasks from the email queues and sends the emails. It runs asynq servers, the pipeline, the client of AWS
// SES, and an HTTP listener for health, metrics and the queue dashboard. With RabbitMQ it also expands mailings and imports
// recipients. Package config describes its environment variables.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
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

func main() {
	healthcheck := flag.Bool("healthcheck", false, "check that the worker at WORKER_ADDR is alive, and exit")
	version := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *version {
		fmt.Fprintln(os.Stdout, "worker", service.Version())
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	service.SetMemory()
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
	hooksDB, err := store.Open(ctx, c.DatabaseURL, store.Options{MaxConns: webhookConns, Pooled: c.Pooled, AllowUnreachable: true})
	if err != nil {
		return err
	}
	defer hooksDB.Close()
	bucket := conn.Client()
	defer func() { err = errors.Join(err, bucket.Close()) }()
	monitor := asynqueue.NewMonitor(asynqueue.MonitorConfig{
		Conn: conn, User: c.MonitoringUser, Password: c.MonitoringPassword, Writable: c.MonitoringWritable, Proxies: c.TrustedProxies,
	})
	defer func() { err = errors.Join(err, monitor.Close()) }()

	files, err := blob.Open(ctx, c.StorageURL, blob.Options{Owner: installation.New(db.DB()), Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Close()) }()

	p := program{config: c, files: files, log: log, registry: telemetry.NewRegistry(), traces: traces, db: db, hooksDB: hooksDB, conn: conn, sender: sender, bucket: bucket, monitor: monitor}
	all, err := p.parts()
	if err != nil {
		return err
	}
	return service.Run(ctx, log, grace+c.DrainDelay, all...)
}
