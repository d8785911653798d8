package company

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/key"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/tenant"
)

// companyView is a company as show and create print it.
type companyView struct {
	tenant.Company
	Domains []string        `json:"domains"`
	Keys    []tenant.APIKey `json:"keys"`
}

func viewCompany(ctx context.Context, s *store.Store, company tenant.Company) (companyView, error) {
	domains, err := s.SenderDomains(ctx, company.ID)
	if err != nil {
		return companyView{}, err
	}
	keys, err := s.APIKeys(ctx, company.ID)
	if err != nil {
		return companyView{}, err
	}
	return companyView{Company: company, Domains: domains, Keys: append([]tenant.APIKey{}, keys...)}, nil
}

func showCommand(c *command.Invocation) *cobra.Command {
	return &cobra.Command{
		Use: "show COMPANY", Short: "Show one company with its domains and keys",
		Example: "  gatewayctl company show Acme",
		Args:    command.ExactArgs("COMPANY"), ValidArgsFunction: operator.CompleteCompanies(c),
		RunE: show(c, func(ctx context.Context, s *store.Store, company tenant.Company) (output.Result, error) {
			return viewCompany(ctx, s, company)
		}),
	}
}

func (v companyView) WriteText(w io.Writer) {
	fmt.Fprintln(w, output.Printable(v.Name))
	fmt.Fprintln(w)
	output.Table(w, "  ", [][]string{
		{"id", v.ID.String()},
		{"state", operator.CompanyState(v.Company)},
		{"default sender", v.DefaultFrom},
		{"sender domains", strings.Join(v.Domains, ", ")},
		{"created", output.Timestamp(v.CreatedAt)},
	})
	fmt.Fprintln(w)
	key.List{Keys: v.Keys}.WriteText(w)
}
