package tenant

import (
	"cmp"
	"context"
	"net/url"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
)

// Complete returns the completion of the first argument with a word for each of the newest entries
// of a list of the tenant, none without API_KEY.
func Complete[T any](c *command.Invocation, path, field string, word func(T) string) command.Completion {
	return command.Complete(false, func(ctx context.Context) []string {
		if c.Getenv("API_KEY") == "" {
			return nil
		}
		api, err := client.New(cmp.Or(c.Getenv("API_URL"), DefaultURL), c.Getenv("API_KEY"))
		if err != nil {
			return nil
		}
		defer api.Close()
		found, _, err := Pages[T](ctx, api, path, field, url.Values{}, command.CompletionLimit)
		if err != nil {
			return nil
		}
		var words []string
		for _, row := range found {
			words = append(words, word(row))
		}
		return words
	})
}
