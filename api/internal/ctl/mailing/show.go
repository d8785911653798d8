package mailing

import (
	"context"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
)

func showCommand(c *command.Invocation) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show a mailing and its progress",
		Long:    "Shows a mailing's upload, the progress of its emails, and possible next commands.",
		Example: "  gatewayctl mailing show 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
		Args:    command.ExactArgs("ID"), ValidArgsFunction: completeMailings(c),
		RunE: tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
			id, err := parseMailing(args[0])
			if err != nil {
				return nil, err
			}
			found, err := findMailing(ctx, api, id)
			if err != nil {
				return nil, err
			}
			return found, nil
		}),
	}
}
