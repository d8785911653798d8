// Command migrate changes the shape of the database named by DATABASE_URL.
//
//	migrate up      apply every migration that is missing
//	migrate down    take back the newest one, with its data
//	migrate status  list them
//	migrate roles   make a role for each program, with what it needs: see roles.sql
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
	"strings"
	"syscall"

	_ "github.com/lib/pq"

	"email-gateway/schema"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv("DATABASE_URL"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "migrate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, databaseURL string, out io.Writer) (err error) {
	if len(args) != 1 {
		return errors.New("usage: migrate up|down|status|roles")
	}
	if databaseURL == "" {
		return errors.New("DATABASE_URL is not set")
	}
	// The driver's own error would quote the URL, and with it the password.
	if u, err := url.Parse(databaseURL); err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		return errors.New("DATABASE_URL must be postgres://user:password@host:port/database, with / # ? and % in the password percent-encoded")
	}
	db, err := sql.Open("postgres", databaseURL)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	switch args[0] {
	case "up":
		err = schema.Up(ctx, db)
	case "down":
		err = schema.Down(ctx, db)
	case "roles":
		return schema.Roles(ctx, db)
	case "status":
	default:
		return fmt.Errorf("unknown command %q: up, down, status or roles", args[0])
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
