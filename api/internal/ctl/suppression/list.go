package suppression

import (
	"context"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/role"
	"email-gateway/api/internal/ctl/tenant"
	"email-gateway/shared/store"
)

type suppressionList struct {
	Suppressions []suppressionView `json:"suppressions"`
	More         bool              `json:"more"`
}

func listCommand(c *command.Invocation) *cobra.Command {
	var o suppressionChoice
	cmd := &cobra.Command{
		Use: "list", Short: "List suppressed addresses in alphabetical order",
		Long: `Lists suppressed addresses. An operator names the company and sees addresses masked unless
--address or --reveal is given; a tenant sees its own.
` + role.Help,
		Example: "  gatewayctl suppression list --reason COMPLAINT\n  gatewayctl suppression list --company Acme --address maria@cliente.example",
		Args:    command.ExactArgs(),
	}
	cmd.Flags().StringVar(&o.address, "address", "", "only suppressions of this `ADDRESS`")
	cmd.Flags().BoolVar(&o.reveal, "reveal", false, "operators only: show addresses in full; writes an audit entry")
	companyFlag(c, cmd, &o.company)
	command.LimitFlag(suppressionReasonFlag(cmd, &o.reason, "", "only suppressions with this reason"), &o.limit)
	return role.Command(c, cmd, role.Actions{
		Operator: func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			return listSuppressionsOf(ctx, c, s, &o)
		},
		Tenant: func(ctx context.Context, api *client.Client, _ []string) (output.Result, error) {
			if err := o.ofTenant(); err != nil {
				return nil, err
			}
			if err := command.CheckLimit(o.limit); err != nil {
				return nil, err
			}
			query := url.Values{}
			if o.address != "" {
				query.Set("address", o.address)
			}
			if o.reason != "" {
				query.Set("reason", o.reason)
			}
			found, more, err := tenant.Pages[suppressionView](ctx, api, suppressionPath, "suppressions", query, o.limit)
			return suppressionList{found, more}, err
		},
	})
}

func (v suppressionList) WriteText(w io.Writer) {
	if len(v.Suppressions) == 0 {
		fmt.Fprintln(w, "No suppressions found.")
		return
	}
	rows := [][]string{{"ADDRESS", "REASON", "SINCE", "MAILING", "NOTE"}}
	for _, s := range v.Suppressions {
		mailing := "-"
		if s.MailingID != nil {
			mailing = s.MailingID.String()
		}
		rows = append(rows, []string{s.Address, s.Reason, output.Timestamp(s.CreatedAt), mailing, s.Note})
	}
	output.Table(w, "", rows)
	output.PrintMore(w, v.More)
}
