// Command interviews is an example of a program that shares the gateway's database: an interview
// and its two reminders are committed or rolled back together, rescheduled and withdrawn. While
// ./scripts/dev.sh runs:
//
//	source .local/dev.env
//	go run ./scripts/cmd/interviews                        # the whole story
//	go run ./scripts/cmd/interviews book ana@example.com +25h
//	go run ./scripts/cmd/interviews move 1 2026-03-01T10:00:00-03:00
//	go run ./scripts/cmd/interviews cancel 1
//	go run ./scripts/cmd/interviews follow 1               # until both reminders have ended
//
// DATABASE_URL is the shared database, COMPANY_ID the sending company; API_URL and API_KEY are for
// story and follow, which read the status of the emails from the gateway.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	_ "github.com/lib/pq"

	"email-gateway/scripts/interviews"
	"email-gateway/shared/outbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "interviews:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: interviews [story | book ADDRESS TIME [follow] | move ID TIME | cancel ID | follow ID]")

// storyTime is the timeout of the whole story: its last reminder is due in seconds.
const storyTime = time.Minute

func run(ctx context.Context, args []string) error {
	company, err := uuid.Parse(os.Getenv("COMPANY_ID"))
	if err != nil {
		return fmt.Errorf("read COMPANY_ID: %w", err)
	}
	reminders, err := outbox.New(outbox.Params{CompanyID: company})
	if err != nil {
		return err
	}
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		return fmt.Errorf("open DATABASE_URL: %w", err)
	}
	defer db.Close()
	a := &interviews.Agenda{DB: db, Reminders: reminders}
	if err := a.Prepare(ctx); err != nil {
		return err
	}
	gateway := interviews.Gateway{URL: os.Getenv("API_URL"), Key: os.Getenv("API_KEY")}
	switch command := strings.Join(args, " "); {
	case command == "" || command == "story":
		ctx, cancel := context.WithTimeout(ctx, storyTime)
		defer cancel()
		return a.Story(ctx, os.Stdout, gateway)
	case len(args) > 2 && args[0] == "book":
		return book(ctx, a, gateway, args[1:])
	case len(args) < 2:
		return errUsage
	}
	id, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return fmt.Errorf("read ID: %w", err)
	}
	switch {
	case args[0] == "move" && len(args) == 3:
		return move(ctx, a, id, args[2])
	case args[0] == "cancel" && len(args) == 2:
		withdrawn, err := a.CallOff(ctx, id)
		interviews.Tell(os.Stdout, withdrawn)
		return err
	case args[0] == "follow" && len(args) == 2:
		return gateway.Follow(ctx, os.Stdout, id, 2)
	}
	return errUsage
}
