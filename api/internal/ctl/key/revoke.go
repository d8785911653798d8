package key

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/tenant"
)

type keyRevoked struct{ tenant.APIKey }

func revokeCommand(c *command.Invocation) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "revoke KEYID --reason WHY",
		Short: "Revoke a key permanently",
		Long: `Revokes a key permanently. Programs that still use it get 401 within 5 s. Emails that were
accepted with it are still sent.`,
		Example: "  gatewayctl key revoke 7qkz3w5hj2xn6b4c --reason 'leaked in a public repository'",
		Args:    command.ExactArgs("KEYID"), ValidArgsFunction: completeKeys(c),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			by, err := operator.IdentityWithReason(c, reason)
			if err != nil {
				return nil, err
			}
			id := keyID(args[0])
			err = s.RevokeAPIKey(ctx, by, id)
			if errors.Is(err, store.ErrNotFound) {
				// Do not repeat the argument: it may contain a secret.
				return nil, errors.New("no key has this id: run `gatewayctl key list --company COMPANY` to see a company's keys")
			}
			if err != nil {
				return nil, err
			}
			revoked, err := s.FindCaller(ctx, id)
			return keyRevoked{revoked.APIKey}, err
		}),
	}
	return operator.ReasonFlag(cmd, &reason, true)
}

func (v keyRevoked) WriteText(w io.Writer) {
	if v.RevokedAt == nil {
		fmt.Fprintf(w, "Key %s (%s) expired at %s.\n", v.KeyID, output.Printable(v.Name), output.Timestamp(v.Ends()))
		return
	}
	fmt.Fprintf(w, "Key %s (%s) was revoked at %s. Requests may still be accepted for up to 5 s.\n", v.KeyID, output.Printable(v.Name), output.Timestamp(*v.RevokedAt))
}
