// Command migrate changes the schema of the database at DATABASE_URL.
//
//	migrate up      apply all missing migrations
//	migrate down    revert the newest one, with its data
//	migrate status  list them
//	migrate roles   create a role for each program, with the grants it needs: see roles.sql
//
// Several commands run in the order given: migrate up roles. roles gives a role the password in the
// variable named after it, such as GATEWAY_API_PASSWORD for gateway_api; a role without such a
// variable keeps its password. It refuses to change the password of a role that another database of
// the server uses.
//
// With ENVIRONMENT=production it refuses passwords that are published in this project's files.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"email-gateway/schema"
	"email-gateway/schema/pgurl"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "migrate:", err)
		os.Exit(1)
	}
}

// usage lists the commands.
const usage = "usage: migrate up|down|status|roles, one or several"

func run(ctx context.Context, commands []string, getenv func(string) string, out, warnings io.Writer) (err error) {
	if len(commands) == 0 {
		return errors.New(usage)
	}
	for _, command := range commands { // before the first of them changes anything
		if !slices.Contains([]string{"up", "down", "status", "roles"}, command) {
			return fmt.Errorf("unknown command %q; %s", command, usage)
		}
	}
	databaseURL := getenv("DATABASE_URL")
	if databaseURL == "" {
		return errors.New("DATABASE_URL is not set")
	}
	u, err := pgurl.Parse(databaseURL)
	if err != nil {
		return err
	}
	if err := refusePublicPasswords(getenv, u); err != nil {
		return err
	}
	db, err := connect(u, warnings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, command := range commands {
		if err := do(ctx, command, db, u, getenv, out, warnings); err != nil {
			return err
		}
	}
	return nil
}

func do(ctx context.Context, command string, db *sql.DB, database *url.URL, getenv func(string) string, out, warnings io.Writer) (err error) {
	switch command {
	case "up":
		err = schema.Up(ctx, db)
	case "down":
		err = schema.Down(ctx, db)
	case "roles":
		return makeRoles(ctx, db, database, getenv, warnings)
	}
	if err != nil {
		return err
	}
	return printStatus(ctx, db, out)
}

func printStatus(ctx context.Context, db *sql.DB, out io.Writer) error {
	steps, err := schema.Status(ctx, db)
	if err != nil {
		return err
	}
	for _, s := range steps {
		state := "pending"
		if s.Applied {
			state = "applied"
		}
		if _, err := fmt.Fprintf(out, "%-8s %s\n", state, s.File); err != nil {
			return err
		}
	}
	return nil
}
