package ctl

import (
	"context"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/shared/store"
)

// either is a command that operators and tenants both have: the one for any company, in
// the database, the other for his own, over the HTTP API.
type either struct {
	operator func(ctx context.Context, s *store.Store, args []string) (answer, error)
	tenant   func(ctx context.Context, api *client.Client, args []string) (answer, error)
}

// Whose word counts.
const (
	asOperator = "operator"
	asTenant   = "tenant"
)

// whoLong stands in the help text of every such command.
const whoLong = `
Where DATABASE_URL is set it is an operator's command, for every company; else it goes to
the HTTP API, for the company whose key API_KEY is. --as chooses.`

func (c *control) either(cmd *cobra.Command, e either) *cobra.Command {
	var as string
	cmd.Flags().StringVar(&as, "as", "", "`WHO` asks: operator (DATABASE_URL), or tenant (API_URL and API_KEY)")
	complete(cmd, "as", []string{asOperator, asTenant})
	operator, tenant := c.run(e.operator), c.call(e.tenant)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.began = true
		switch {
		case as == asOperator, as == "" && c.Getenv("DATABASE_URL") != "":
			return operator(cmd, args)
		case as == "" && c.Getenv("API_KEY") == "":
			return usagef("neither DATABASE_URL is set, which an operator needs, nor API_KEY, which a tenant does")
		case as == asTenant, as == "":
			return tenant(cmd, args)
		}
		return usagef("--as %q must be %s or %s", as, asOperator, asTenant)
	}
	return cmd
}
