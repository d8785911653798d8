// Package operator runs the commands of operators, which use the database named by DATABASE_URL
// through shared/store. It provides what they share: the operator's identity and reason for the
// audit log, the arguments that name a company, and shell completion from the database.
package operator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/environment"
	"email-gateway/shared/store"
)

// Run returns the RunE of an operator's command: it calls do with an open store, and prints the
// result.
func Run(c *command.Invocation, do func(ctx context.Context, s *store.Store, args []string) (output.Result, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c.Parsed = true
		databaseURL := c.Getenv("DATABASE_URL")
		if databaseURL == "" {
			return MissingDatabase()
		}
		var f environment.Faults
		f.RefusePublicSecrets(c.Environ)
		if err := f.Err(); err != nil {
			return command.Usagef("%v", err)
		}
		// A command runs its queries one after the other, so one connection is enough.
		s, err := store.Open(cmd.Context(), databaseURL, StoreOptions(c, 1))
		if err != nil {
			return fmt.Errorf("cannot use the database that DATABASE_URL names: %w", withAdvice(err, false))
		}
		defer s.Close()
		found, err := do(cmd.Context(), s, args)
		if err != nil {
			return withAdvice(err, c.Committed)
		}
		return c.Print(found)
	}
}

// StoreOptions returns the options of a store with conns connections.
func StoreOptions(c *command.Invocation, conns int) store.Options {
	pooled, _ := strconv.ParseBool(c.Getenv("DATABASE_POOLED"))
	return store.Options{MaxConns: conns, Pooled: pooled}
}

// MissingDatabase returns the error of a command that needs DATABASE_URL, which is not set.
func MissingDatabase() error {
	return command.Usagef("DATABASE_URL is not set: give the gateway's database, as in postgres://gateway@127.0.0.1:5432/gateway")
}

// ErrUnfinished wraps the error of a command that commits in steps.
var ErrUnfinished = errors.New("not finished: run this again to continue with what is left")

// withAdvice appends to the store's errors what an operator can do. committed: the command had committed its change before the
// error, which is that of a read for its output.
func withAdvice(err error, committed bool) error {
	switch text := strings.ReplaceAll(err.Error(), "\n", ": "); {
	case committed && (store.IsOutage(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return fmt.Errorf("the change was committed, but its result cannot be shown: %s (is Postgres running? do not repeat the command)", text)
	case errors.Is(err, store.ErrNotMigrated):
		return fmt.Errorf("%s (run `migrate up` with the same DATABASE_URL)", text)
	case store.IsOutage(err) && errors.Is(err, ErrUnfinished):
		return fmt.Errorf("%s (is Postgres running?)", text)
	case errors.Is(err, store.ErrUnavailable):
		return fmt.Errorf("%s (is Postgres running? nothing was changed)", text)
	case errors.Is(err, store.ErrUnknownOutcome):
		return fmt.Errorf("%s (the change may have been committed: check before you repeat the command)", text)
	}
	return err
}
