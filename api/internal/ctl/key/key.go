// Package key implements gatewayctl key: operators create, rotate and revoke the API keys of a
// company.
package key

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/shared/store"
)

// Command returns the command `gatewayctl key` with its subcommands.
func Command(c *command.Invocation) *cobra.Command {
	cmd := command.Group("key", "Create, list and revoke API keys",
		`An API key authenticates a company's programs to the HTTP API. It is shown only once, when it
is created: the gateway stores only the SHA-256 of its secret.`,
		`  gatewayctl key create --company Acme --scopes emails:send
  gatewayctl key revoke 7qkz3w5hj2xn6b4c --reason 'leaked in a public repository'`)
	cmd.AddCommand(createCommand(c), listCommand(c), rotateCommand(c), revokeCommand(c))
	return cmd
}

// keyID returns the public part of the argument: people paste whole keys.
func keyID(given string) string {
	if key, err := apikey.Parse(given); err == nil {
		return key.ID
	}
	return given
}

func completeKeys(c *command.Invocation) command.Completion {
	return operator.Complete(c, func(ctx context.Context, s *store.Store) (ids []string) {
		all, err := s.Companies(ctx)
		if err != nil {
			return nil
		}
		for _, company := range all {
			keys, err := s.APIKeys(ctx, company.ID)
			if err != nil {
				return nil
			}
			for _, k := range keys {
				if !k.Ended(time.Now()) {
					ids = append(ids, k.KeyID+"\t"+company.Name+", "+k.Name)
				}
			}
		}
		return ids
	})
}
