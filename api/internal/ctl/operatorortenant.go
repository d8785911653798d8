package ctl

import (
	"context"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/shared/store"
)

// operatorOrTenant is a command for operators and tenants: operators use the database and see every
// company, tenants use the HTTP API and see their own.
type operatorOrTenant struct {
	operator func(ctx context.Context, s *store.Store, args []string) (answer, error)
	tenant   func(ctx context.Context, api *client.Client, args []string) (answer, error)
}

// The values of --as.
const (
	asOperator = "operator"
	asTenant   = "tenant"
)

// accessHelp is appended to the help text of every such command.
const accessHelp = `
If DATABASE_URL is set, the command runs as operator, for every company. Otherwise it calls
the HTTP API as the tenant whose key API_KEY is. --as overrides that.`

func (c *control) operatorOrTenant(cmd *cobra.Command, e operatorOrTenant) *cobra.Command {
	var as string
	cmd.Flags().StringVar(&as, "as", "", "run as `ROLE`: operator (needs DATABASE_URL) or tenant (needs API_URL and API_KEY)")
	complete(cmd, "as", []string{asOperator, asTenant})
	operator, tenant := c.run(e.operator), c.call(e.tenant)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.parsed = true
		switch {
		case as == asOperator, as == "" && c.Getenv("DATABASE_URL") != "":
			return operator(cmd, args)
		case as == "" && c.Getenv("API_KEY") == "":
			return usagef("set DATABASE_URL to run as an operator, or API_KEY to run as a tenant")
		case as == asTenant, as == "":
			return tenant(cmd, args)
		}
		return usagef("--as %q must be %s or %s", as, asOperator, asTenant)
	}
	return cmd
}
