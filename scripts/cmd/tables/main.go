// Command tables measures what the shape of the tables costs and gains, on databases
// that it makes on the server that DATABASE_URL names, and drops:
//
//	go run ./cmd/tables partitions    what each write and read takes, email_logs and email_events
//	                                  in one piece and in months
//	go run ./cmd/tables churn         what is left of email_outbox after many lives of an email,
//	                                  with Postgres's settings and with the migrations'
//
// schema/README.md holds the figures.
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "tables:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	server := os.Getenv("DATABASE_URL")
	if server == "" {
		return errors.New("DATABASE_URL must name a Postgres server on which databases may be made")
	}
	what := ""
	if len(args) > 0 {
		what, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("tables "+what, flag.ContinueOnError)
	switch what {
	case "partitions":
		var m months
		flags.IntVar(&m.months, "months", 24, "partitions of the past")
		flags.IntVar(&m.rows, "rows", 20000, "emails in each")
		flags.IntVar(&m.rounds, "rounds", 9, "turns that each shape gets")
		flags.DurationVar(&m.turn, "turn", 2*time.Second, "how long one goes on")
		flags.StringVar(&m.only, "only", "", "measure what has this in its name")
		if err := flags.Parse(args); err != nil {
			return err
		}
		return m.measure(ctx, server, out)
	case "churn":
		var c churn
		flags.IntVar(&c.lives, "lives", 10000, "thousands of emails")
		flags.IntVar(&c.every, "every", 1000, "thousands of emails between two lines of the report")
		flags.IntVar(&c.standing, "standing", 300, "thousands of sent emails that are kept before they are purged")
		flags.IntVar(&c.backlog, "backlog", 20000, "emails that wait for their turn all the time")
		flags.IntVar(&c.rate, "rate", 0, "emails per second; 0 = as many as the machine does")
		flags.StringVar(&c.settings, "settings", "", "storage parameters of the table, as ALTER TABLE takes them; none = Postgres's own; empty = the migrations'")
		if err := flags.Parse(args); err != nil {
			return err
		}
		return c.measure(ctx, server, out)
	default:
		return errors.New("say what to measure: partitions or churn")
	}
}
