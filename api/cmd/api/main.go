// Command api serves the HTTP API. It needs Postgres, and a storage for the files of mailings and attachments. Package config
// describes its environment variables.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"email-gateway/api/internal/config"
	"email-gateway/shared/blob"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/store/installation"
	"email-gateway/shared/telemetry"
)

const (
	// statementTimeout limits a request's statements, which normally take milliseconds: a client
	// should get an error before it times out itself.
	statementTimeout = 10 * time.Second
	// connections are for 8 concurrent statements about companies' rows, 6 lookups, 12 statements
	// that wait for locks, 4 uploads being written, and 2 groups of new emails. 6 transactions of
	// companies close to a quota and other single-row statements (uncached keys and quotas,
	// unconfirmed commits) use idle ones.
	connections = 32
	// grace limits how long a shutdown waits for requests in progress: for a statement, its
	// response, and the lookup of an unconfirmed commit.
	grace = 30 * time.Second
)

func main() { os.Exit(service.Main(command())) }

func command() service.Program {
	return service.Program{Name: "api", Addr: config.ReadAddr, Serve: serve}
}

func serve(ctx context.Context, environ []string, logs io.Writer) (err error) {
	c, err := config.Read(environ)
	if err != nil {
		return err
	}
	log := telemetry.NewLogger(logs, "email-gateway-api", c.Environment, c.LogLevel)
	traces, err := telemetry.NewTracing(ctx, log, "email-gateway-api", c.Environment, c.TraceSettings)
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, c.DatabaseURL, store.Options{StatementTimeout: statementTimeout, MaxConns: connections, Pooled: c.Pooled, AllowUnreachable: true})
	if err != nil {
		return err
	}
	defer db.Close()
	accepter := db.NewAccepter()
	defer accepter.Close()
	owner := installation.New(db.DB())
	bucket, err := blob.Open(ctx, c.StorageURL, blob.Options{Owner: owner, Claim: owner, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bucket.Close()) }()
	p := program{config: c, log: log, registry: telemetry.NewRegistry(), traces: traces, db: db, accepter: accepter, storage: newStorage(log, bucket)}
	parts, err := p.parts()
	if err != nil {
		return err
	}
	return service.Run(ctx, log, grace+c.DrainDelay, parts...)
}
