// The api answers the gateway's HTTP requests. It needs Postgres and, for mailings, a
// storage for their files.
//
//	api               serves until SIGINT or SIGTERM, then finishes what it has begun
//	api -healthcheck  asks the api on API_ADDR for a sign of life; exit code 0 or 1
//	api -version      says which release it is
//
// README.md beside the module lists the environment.
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
	// statementTimeout bounds a request's statements, all of which take milliseconds:
	// a client should hear that Postgres does not answer before it gives up itself.
	statementTimeout = 10 * time.Second
	// connections are for 8 statements about companies' rows at once, 6 look-ups, 12 that wait for locks, 4
	// uploads that are written, and 2 groups of new emails: none of these takes those of another. Statements about one
	// row that are not among them (keys and quotas that are not cached, unconfirmed commits) use idle ones.
	connections = 32
	// grace is how long a stop waits for requests under way: for a statement, its
	// answer, and the look-up of a commit that was not confirmed.
	grace = 30 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	service.TradeMemory()
	if err := run(ctx, os.Args[1:], os.Environ(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args, environ []string, out io.Writer) error {
	flags := flag.NewFlagSet("api", flag.ContinueOnError)
	healthcheck := flags.Bool("healthcheck", false, "ask the api on API_ADDR for a sign of life and exit")
	version := flags.Bool("version", false, "say which release this is and exit")
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
	accepter := db.NewAccepter()
	err = serve(ctx, log, settings, traces, db, accepter)
	accepter.Close()
	return errors.Join(err, db.Close())
}
