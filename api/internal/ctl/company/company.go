// Package company implements gatewayctl company: operators create, suspend and configure
// companies.
package company

import (
	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
)

// Command returns the command `gatewayctl company` with its subcommands.
func Command(c *command.Invocation) *cobra.Command {
	cmd := command.Group("company", "Create, list, suspend and resume companies (tenants)",
		"A company is a tenant: it has API keys, sender domains and emails.",
		`  gatewayctl company create --name Acme --default-from 'Acme <billing@acme.example>'
  gatewayctl company suspend Acme --reason 'unpaid since October'`)
	cmd.AddCommand(createCommand(c), listCommand(c), showCommand(c), suspendCommand(c), resumeCommand(c), retentionCommand(c), quotaCommand(c), webhookCommand(c), mailingsCommand(c), cancelMailingCommand(c), reputationCommand(c), usageCommand(c))
	return cmd
}
