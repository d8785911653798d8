package operator

import (
	"context"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/shared/store"
)

// Complete returns the completion of the first argument with the words that read finds in the
// database, none without DATABASE_URL.
func Complete(c *command.Invocation, read func(ctx context.Context, s *store.Store) []string) command.Completion {
	return command.Complete(false, func(ctx context.Context) []string { return wordsFromStore(ctx, c, read) })
}

func wordsFromStore(ctx context.Context, c *command.Invocation, read func(ctx context.Context, s *store.Store) []string) []string {
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
	return read(ctx, s)
}
