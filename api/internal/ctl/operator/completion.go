package operator

import (
	"context"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/shared/store"
)

// CompleteFromStore returns the words that ask reads from the database, none without DATABASE_URL.
func CompleteFromStore(ctx context.Context, c *command.Invocation, ask func(s *store.Store) []string) []string {
	address := c.Getenv("DATABASE_URL")
	if address == "" {
		return nil
	}
	o := StoreOptions(c, 1)
	o.StatementTimeout = command.CompletionTimeout
	s, err := store.Open(ctx, address, o)
	if err != nil {
		return nil
	}
	defer s.Close()
	return ask(s)
}
