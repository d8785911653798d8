// Package role runs a command either as an operator, through the database, or as a tenant,
// through the HTTP API.
package role

import (
	"context"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
	"email-gateway/shared/store"
)

// Actions are what a command does for an operator, who uses the database and sees every company,
// and for a tenant, who uses the HTTP API and sees its own company.
type Actions struct {
	Operator func(ctx context.Context, s *store.Store, args []string) (output.Result, error)
	Tenant   func(ctx context.Context, api *client.Client, args []string) (output.Result, error)
}

// The values of --as.
const (
	asOperator = "operator"
	asTenant   = "tenant"
)

// Help is appended to the help text of every command that Command completes.
const Help = `
If DATABASE_URL is set, the command runs as operator, for every company. Otherwise it calls
the HTTP API as the tenant whose key API_KEY is. --as overrides that.`

// Command completes cmd: it adds the flag --as, and runs the action of the operator or of the
// tenant.
func Command(c *command.Invocation, cmd *cobra.Command, do Actions) *cobra.Command {
	var as string
	cmd.Flags().StringVar(&as, "as", "", "run as `ROLE`: operator (needs DATABASE_URL) or tenant (needs API_URL and API_KEY)")
	command.CompleteFlag(cmd, "as", []string{asOperator, asTenant})
	runAsOperator, runAsTenant := operator.Run(c, do.Operator), tenant.Run(c, do.Tenant)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.Parsed = true
		switch {
		case as == asOperator, as == "" && c.Getenv("DATABASE_URL") != "":
			return runAsOperator(cmd, args)
		case as == "" && c.Getenv("API_KEY") == "":
			return command.Usagef("set DATABASE_URL to run as an operator, or API_KEY to run as a tenant")
		case as == asTenant, as == "":
			return runAsTenant(cmd, args)
		}
		return command.Usagef("--as %q must be %s or %s", as, asOperator, asTenant)
	}
	return cmd
}
