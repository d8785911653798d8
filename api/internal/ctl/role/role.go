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

// Actions is a command for operators and tenants: operators use the database and see every
// company, tenants use the HTTP API and see their own.
type Actions struct {
	Operator func(ctx context.Context, s *store.Store, args []string) (output.Result, error)
	Tenant   func(ctx context.Context, api *client.Client, args []string) (output.Result, error)
}

// The values of --as.
const (
	asOperator = "operator"
	asTenant   = "tenant"
)

// Help is appended to the help text of every such command.
const Help = `
If DATABASE_URL is set, the command runs as operator, for every company. Otherwise it calls
the HTTP API as the tenant whose key API_KEY is. --as overrides that.`

// Command completes cmd: it adds the flag --as, and runs the action of the operator or of the
// tenant.
func Command(c *command.Invocation, cmd *cobra.Command, e Actions) *cobra.Command {
	var as string
	cmd.Flags().StringVar(&as, "as", "", "run as `ROLE`: operator (needs DATABASE_URL) or tenant (needs API_URL and API_KEY)")
	command.CompleteFlag(cmd, "as", []string{asOperator, asTenant})
	operator, tenant := operator.Run(c, e.Operator), tenant.Run(c, e.Tenant)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.Parsed = true
		switch {
		case as == asOperator, as == "" && c.Getenv("DATABASE_URL") != "":
			return operator(cmd, args)
		case as == "" && c.Getenv("API_KEY") == "":
			return command.Usagef("set DATABASE_URL to run as an operator, or API_KEY to run as a tenant")
		case as == asTenant, as == "":
			return tenant(cmd, args)
		}
		return command.Usagef("--as %q must be %s or %s", as, asOperator, asTenant)
	}
	return cmd
}
