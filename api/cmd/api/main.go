// The api serves the gateway's HTTP API. It needs Postgres and, for mailings, a storage for
// their files.
//
//	api               serves until SIGINT or SIGTERM, then finishes requests in progress
//	api -healthcheck  checks the api on API_ADDR; exit code 0 or 1
//	api -version      prints the version
//
// The README of the module lists the environment.
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

	"email-gateway/api/internal/config"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	service.SetMemory()
	if err := run(ctx, os.Args[1:], os.Environ(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args, environ []string, out io.Writer) error {
	flags := flag.NewFlagSet("api", flag.ContinueOnError)
	healthcheck := flags.Bool("healthcheck", false, "check the api on API_ADDR and exit")
	version := flags.Bool("version", false, "print the version and exit")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	if *version {
		_, err := fmt.Fprintln(out, "api", service.Version())
		return err
	}
	if *healthcheck {
		addr, err := config.ReadAddr(environ)
		if err != nil {
			return err
		}
		return service.Healthcheck(ctx, addr)
	}
	settings, err := config.Read(environ)
	if err != nil {
		return err
	}
	log := telemetry.NewLogger(out, "email-gateway-api", settings.Environment, settings.LogLevel)
	traces, err := telemetry.NewTracing(ctx, log, "email-gateway-api", settings.Environment, settings.TraceSettings)
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, settings.DatabaseURL, store.Options{StatementTimeout: statementTimeout, MaxConns: connections, Pooled: settings.Pooled, AllowUnreachable: true})
	if err != nil {
		return err
	}
	defer db.Close()
	accepter := db.NewAccepter()
	defer accepter.Close()
	return serve(ctx, log, settings, traces, db, accepter)
}
