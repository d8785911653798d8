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
	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// fromStdin is the argument in place of an id whose command reads the ids from standard input.
const fromStdin = "-"

func cancelCommand(c *command.Invocation) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "cancel ID", Short: "Cancel an email that no worker is processing",
		Long: `Cancels an email that no worker is processing yet (PENDING, ENQUEUED, RETRY_SCHEDULED).
Cancelling a cancelled email changes nothing. Operators must give a --reason.

With - as ID, operators cancel many emails, whose ids are on standard input, one per line. If
a line is not an id, nothing is changed. Emails that cannot be cancelled are listed on standard
error with their status, LOCKED (another transaction is changing them: try again) or NOT_FOUND,
and the exit code is 1. After an interruption, run the command again with the same ids.
` + role.Help,
		Example: `  gatewayctl email cancel 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --reason 'wrong amount'
  gatewayctl email cancel - --reason 'sent twice' < ids.txt`,
		Args: command.ExactArgs("ID"), ValidArgsFunction: completeEmails(c),
	}
	operator.ReasonFlag(cmd, &reason, false)
	return role.Command(c, cmd, role.Actions{
		Operator: func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			by, err := operator.IdentityWithReason(c, reason)
			if err != nil {
				return nil, err
			}
			if args[0] == fromStdin {
				return cancelAll(ctx, c, s, by)
			}
			found, err := findEmail(ctx, s, args[0])
			if err != nil {
				return nil, err
			}
			moved, err := s.CancelEmail(ctx, by, found.CompanyID, found.ID)
			if moved.Status == "" {
				moved.Status = found.Status // the outbox row is purged
			}
			switch {
			case err != nil:
				return nil, err
			case !moved.Applied && moved.Status != email.Cancelled:
				return nil, fmt.Errorf("the email cannot be cancelled: it is %s; run `gatewayctl email explain %s` for details", moved.Status, found.ID)
			}
			return showMoved(ctx, s, found, "cancelled")
		},
		Tenant: func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
			if args[0] == fromStdin {
				return nil, command.Usagef("only operators cancel the emails of standard input: the HTTP API cancels one email per request, by its ID")
			}
			return stepEmail(ctx, api, args[0], "cancel", "cancelled")
		},
	})
}
