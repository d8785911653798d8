package email

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/role"
	"email-gateway/shared/store"
)

func showCommand(c *command.Invocation) *cobra.Command {
	var reveal bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show an email and its timeline",
		Long: `Shows an email's status and its timeline. An operator sees addresses masked, including those
in the provider's messages; --reveal shows them and writes an audit entry.
` + role.Help,
		Example: "  gatewayctl email show 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
		Args:    command.ExactArgs("ID"), ValidArgsFunction: completeEmails(c),
	}
	cmd.Flags().BoolVar(&reveal, "reveal", false, "operators only: show addresses in full; writes an audit entry")
	return role.Command(c, cmd, role.Actions{
		Operator: func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			found, err := findEmail(ctx, s, args[0])
			if err != nil {
				return nil, err
			}
			if err := operator.RecordReveal(ctx, c, s, reveal, "email", found.CompanyID, found.ID.String()); err != nil {
				return nil, err
			}
			events, err := s.Timeline(ctx, found.ID)
			if err != nil {
				return nil, err
			}
			allowed, err := c.EmailMaxAttempts()
			if err != nil {
				return nil, err
			}
			return viewEmail(found, events, allowed, reveal)
		},
		Tenant: func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
			id, err := parseEmail(args[0])
			if err != nil {
				return nil, err
			}
			return fetchEmail(ctx, api, id)
		},
	})
}

// fetchEmail reads one of the tenant's own emails over the HTTP API.
func fetchEmail(ctx context.Context, api *client.Client, id uuid.UUID) (emailView, error) {
	v := emailView{now: time.Now()}
	err := api.Get(ctx, emailPath+"/"+id.String(), nil, &v)
	return v, err
}
