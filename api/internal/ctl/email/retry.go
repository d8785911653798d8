package email

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/role"
	"email-gateway/shared/store"
)

func retryCommand(c *command.Invocation) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "retry ID", Short: "Retry an email that FAILED, EXPIRED or was CANCELLED",
		Long: `Gives an email that FAILED, EXPIRED or was CANCELLED all its tries again and a new deadline:
for operators EMAIL_TTL from now (24h if it is not set here). If the outcome of an earlier
try is unknown, the email is marked possibleDuplicate from then on.
` + role.Help,
		Example: "  gatewayctl email retry 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --reason 'identity is verified now'",
		Args:    command.ExactArgs("ID"), ValidArgsFunction: completeEmails(c),
	}
	operator.ReasonFlag(cmd, &reason, false)
	return role.Command(c, cmd, role.Actions{
		Operator: func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			by, err := operator.Identity(c, reason)
			if err != nil {
				return nil, err
			}
			ttl, err := c.EmailTTL()
			if err != nil {
				return nil, err
			}
			found, err := findEmail(ctx, s, args[0])
			if err != nil {
				return nil, err
			}
			moved, err := s.ReplayEmail(ctx, by, found.CompanyID, found.ID, ttl)
			switch {
			case err != nil:
				return nil, err
			case !moved.Applied && (moved.Status == "" || moved.Erased):
				return nil, fmt.Errorf("email %s cannot be retried: its content has been deleted", found.ID)
			case !moved.Applied && moved.Replaced:
				return nil, fmt.Errorf("email %s cannot be retried: another email of the same aggregate and event type replaced it", found.ID)
			case !moved.Applied:
				return nil, fmt.Errorf("email %s cannot be retried: it is %s; only FAILED, EXPIRED and CANCELLED emails can be, "+
					"unless their whole mailing was cancelled", found.ID, moved.Status)
			}
			if err := s.Wake(ctx); err != nil {
				return nil, err
			}
			return showMoved(ctx, s, found, "scheduled again")
		},
		Tenant: func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
			return stepEmail(ctx, api, args[0], "retry", "scheduled again")
		},
	})
}
