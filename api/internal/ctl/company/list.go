package company

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/tenant"
)

type companyList struct {
	Companies []tenant.Company `json:"companies"`
}

func listCommand(c *command.Invocation) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List all companies",
		Example: "  gatewayctl company list\n  gatewayctl company list --json | jq -r '.companies[].name'",
		Args:    command.ExactArgs(),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			all, err := s.Companies(ctx)
			return companyList{append([]tenant.Company{}, all...)}, err
		}),
	}
}

func (v companyList) WriteText(w io.Writer) {
	if len(v.Companies) == 0 {
		fmt.Fprintln(w, "No companies yet: see `gatewayctl company create --help`.")
		return
	}
	rows := [][]string{{"NAME", "ID", "DEFAULT SENDER", "CREATED", "STATE"}}
	for _, company := range v.Companies {
		rows = append(rows, []string{company.Name, company.ID.String(), company.DefaultFrom, output.Timestamp(company.CreatedAt), operator.CompanyState(company)})
	}
	output.Table(w, "", rows)
}
