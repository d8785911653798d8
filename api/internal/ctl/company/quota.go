package company

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/tenant"
)

func quotaCommand(c *command.Invocation) *cobra.Command {
	cmd := command.Group("quota", "Show and set a company's quotas",
		`Quotas limit a company's use of shared resources. The api rejects a request that would exceed
one with 429 QUOTA_EXCEEDED and stores nothing of it. A mailing that has used up the emails of
the day continues after midnight (UTC). The api's QUOTA_ settings apply to companies without
limits of their own; 0 is unlimited.`,
		`  gatewayctl company quota show Acme
  gatewayctl company quota set Acme emails_per_day=50000 --reason 'their contract'`)
	cmd.AddCommand(quotaShowCommand(c), quotaSetCommand(c))
	return cmd
}

func quotaShowCommand(c *command.Invocation) *cobra.Command {
	return &cobra.Command{
		Use: "show COMPANY", Short: "Show a company's quotas and current use",
		Example: "  gatewayctl company quota show Acme",
		Args:    command.ExactArgs("COMPANY"), ValidArgsFunction: operator.CompleteCompanies(c),
		RunE: show(c, viewQuotas),
	}
}

func quotaSetCommand(c *command.Invocation) *cobra.Command {
	cmd := &cobra.Command{
		Use: "set COMPANY QUOTA=LIMIT...", Short: "Set limits for one company",
		Long: `Sets limits of the company; the others stay unchanged. A limit is a whole number; 0 is
unlimited, and default removes the company's own limit, so that the api's QUOTA_ setting
applies again. A limit below the current use removes nothing: the company can add nothing
until its use is below the limit. The programs apply a change within 5 s, mailings that wait
for a quota within a minute.


Quotas:
  ` + strings.ReplaceAll(quotaNames(), ", ", "\n  "),
		Example: `  gatewayctl company quota set Acme emails_per_day=50000 running_mailings=5 --reason 'their contract'
  gatewayctl company quota set Acme stored_body_bytes=0
  gatewayctl company quota set Acme emails_per_day=default`,
	}
	return settings[map[quota.Quota]*int64]{
		usage: "QUOTA=LIMIT, such as emails_per_day=50000",
		parse: parseLimits,
		set: func(ctx context.Context, s *store.Store, by audit.Operator, company uuid.UUID, limits map[quota.Quota]*int64) error {
			return s.SetQuotas(ctx, by, company, limits)
		},
		show: viewQuotas,
	}.setCommand(c, cmd)
}

func quotaNames() string {
	names := make([]string, 0, len(quota.All()))
	for _, q := range quota.All() {
		names = append(names, string(q))
	}
	return strings.Join(names, ", ")
}

// parseLimits parses QUOTA=LIMIT arguments; nil stands for the installation's limit.
func parseLimits(given []string) (map[quota.Quota]*int64, error) {
	limits := make(map[quota.Quota]*int64, len(given))
	for _, word := range given {
		name, text, found := strings.Cut(word, "=")
		q := quota.Quota(name)
		switch _, twice := limits[q]; {
		case !found:
			return nil, command.Usagef("%q is not QUOTA=LIMIT, such as emails_per_day=50000", word)
		case !slices.Contains(quota.All(), q):
			return nil, command.Usagef("unknown quota %q: the quotas are %s", name, quotaNames())
		case twice:
			return nil, command.Usagef("%s is given twice", name)
		}
		limit, err := strconv.ParseInt(text, 10, 64)
		switch {
		case text == "default":
			limits[q] = nil
		case err != nil || limit < 0 || text[0] == '+':
			return nil, command.Usagef("%s=%s: the limit must be a whole number from 0 (unlimited) to %d, or default", name, text, int64(math.MaxInt64))
		default:
			limits[q] = &limit
		}
	}
	return limits, nil
}

type quotaView struct {
	CompanyID uuid.UUID   `json:"companyId"`
	Company   string      `json:"company"`
	Quotas    []quota.Use `json:"quotas"`
}

func viewQuotas(ctx context.Context, s *store.Store, company tenant.Company) (output.Result, error) {
	quotas, err := s.CompanyQuotas(ctx, company.ID)
	return quotaView{CompanyID: company.ID, Company: company.Name, Quotas: quotas}, err
}

func (v quotaView) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n", output.Printable(v.Company))
	rows := [][]string{{"QUOTA", "LIMIT", "IN USE", "SET BY", "RESET AT"}}
	for _, q := range v.Quotas {
		limit, by, reset := "unlimited", "installation", ""
		if q.Limit > 0 {
			limit = output.Thousands(int(q.Limit))
		}
		if q.Own {
			by = "company quota set"
		}
		if q.Reset != nil {
			reset = output.Timestamp(*q.Reset)
		}
		rows = append(rows, []string{string(q.Quota), limit, output.Thousands(int(q.Use)), by, reset})
	}
	output.Table(w, "  ", rows)
}
