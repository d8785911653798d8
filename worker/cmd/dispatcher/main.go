// Command dispatcher moves due rows from Postgres to the queues, and maintains the tables: it expires overdue emails, recovers
// emails after crashes, counts mailings and deletes expired data. Any number may run. Package config describes its environment
// variables.
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
	"email-gateway/shared/store/event"
	"email-gateway/shared/store/installation"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/config"
	"email-gateway/worker/internal/queue/asynqueue"
)

// grace is how long the parts may take to stop. A running round is cancelled and rolled back.
const grace = 15 * time.Second

func main() { os.Exit(service.Main(command())) }

func command() service.Program {
	return service.Program{Name: "dispatcher", Addr: addr, Serve: serve}
}

func addr(environ []string) (string, error) {
	c, err := config.ReadDispatcher(environ)
	return c.Addr, err
}

func serve(ctx context.Context, environ []string, logs io.Writer) (err error) {
	c, err := config.ReadDispatcher(environ)
	if err != nil {
		return err
	}
	log := telemetry.NewLogger(logs, "email-gateway-dispatcher", c.Environment, c.LogLevel)
	asynqueue.LogRedis(log)
	traces, err := telemetry.NewTracing(ctx, log, "email-gateway-dispatcher", c.Environment, c.TraceSettings)
	if err != nil {
		return err
	}
	conn, err := asynqueue.ParseURL(c.RedisURL)
	if err != nil {
		return err
	}
	listener, err := lane.NewListener(c.ListenURL, log)
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, c.DatabaseURL, store.Options{Pooled: c.Pooled, AllowUnreachable: true})
	if err != nil {
		return err
	}
	defer db.Close()
	listener.Follow(db.DB())
	owner := installation.New(db.DB())
	conn = conn.WithInstallation(owner.ID, log)
	publisher := asynqueue.NewPublisher(conn)
	defer func() { err = errors.Join(err, publisher.Close()) }()
	redis := conn.Client()
	defer func() { err = errors.Join(err, redis.Close()) }()
	storage, err := blob.Open(ctx, c.StorageURL, blob.Options{Owner: owner, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, storage.Close()) }()
	p := program{
		config: c, log: log, registry: telemetry.NewRegistry(), traces: traces, db: db, feed: event.New(db.DB()), publisher: publisher, redis: redis,
		listener: listener, storage: storage,
	}
	if c.RabbitMQURL != "" {
		if p.bulk, err = openBulk(c, log, owner.ID, p.registry); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.bulk.close()) }()
	}
	return service.Run(ctx, log, grace+c.DrainDelay, p.parts()...)
}
