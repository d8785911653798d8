// Command dispatcher moves emails that are due from Postgres to the queue and ends
// those that are overdue. Any number may run. Its environment is described in
// package config.
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

	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/config"
	"email-gateway/worker/internal/dispatcher"
	"email-gateway/worker/internal/maintenance"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/rabbitmq"
	"email-gateway/worker/internal/status"
)

// grace is how long the parts have to end. A round is cancelled, and rolls back.
const grace = 15 * time.Second

func main() {
	healthcheck := flag.Bool("healthcheck", false, "ask the dispatcher at DISPATCHER_ADDR whether it lives")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Environ(), os.Stderr, *healthcheck); err != nil {
		fmt.Fprintln(os.Stderr, "dispatcher:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, environ []string, logs io.Writer, healthcheck bool) (err error) {
	c, err := config.ReadDispatcher(environ)
	if err != nil {
		return err
	}
	if healthcheck {
		return service.Healthcheck(ctx, c.Addr)
	}
	log := telemetry.NewLogger(logs, "email-gateway-dispatcher", c.Environment, c.LogLevel)
	asynqueue.LogRedis(log)
	conn, err := asynqueue.ParseURL(c.RedisURL)
	if err != nil {
		return err
	}
	listener, err := store.NewListener(c.ListenURL, log)
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, c.DatabaseURL, store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	publisher := asynqueue.NewPublisher(conn)
	defer func() { err = errors.Join(err, publisher.Close()) }()
	return service.Run(ctx, log, grace, parts(c, log, db, publisher, listener)...)
}

// parts lists the program's parts in the order in which they start; they stop the
// other way round.
func parts(
	c config.Dispatcher, log *slog.Logger, db *store.Store, publisher *asynqueue.Publisher, listener *store.Listener,
) []service.Named {
	registry := telemetry.NewRegistry()
	probes := map[string]status.Probe{"redis": publisher.Ping}
	if c.RabbitMQURL != "" {
		probes["rabbitmq"] = rabbitmq.Probe(c.RabbitMQURL)
	}
	ready := map[string]status.Probe{"database": db.Ping, "redis": publisher.Ping}
	return []service.Named{
		{Name: "http", Service: service.NewHTTP(log, c.Addr, status.Handler(registry, ready))},
		{Name: "status", Service: status.NewReporter(status.Params{
			Log: log, Store: db, Service: "dispatcher", Instance: status.Instance(), Probes: probes,
		})},
		{Name: "listener", Service: listener},
		{Name: "dispatcher", Service: dispatcher.New(dispatcher.Params{
			Log: log, Outbox: db, Queue: publisher, Registry: registry, Wake: listener.Woken(), PollInterval: c.PollInterval,
			Concurrency: c.Concurrency, SendRate: c.SendRate, MaxAttempts: c.MaxAttempts,
		})},
		{Name: "expiry sweeper", Service: maintenance.NewExpirySweeper(maintenance.SweeperParams{
			Log: log, Store: db, Advancer: db.NewAdvancer(), Registry: registry,
		})},
		{Name: "idempotency cleaner", Service: maintenance.NewIdempotencyCleaner(log, db)},
	}
}
