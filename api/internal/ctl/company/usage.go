package company

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	usagecommand "email-gateway/api/internal/ctl/usage"
	"email-gateway/shared/store"
	"email-gateway/shared/store/tenant"
	"email-gateway/shared/store/usage"
)

func usageCommand(c *command.Invocation) *cobra.Command {
	var month string
	cmd := &cobra.Command{
		Use: "usage COMPANY", Short: "Show what a company used in a month, by day",
		Long: `Shows how many emails the company sent in a month, by day, what SES reported about them, its mailings
and bytes, and the use of its quotas, as GET /v1/usage does. Days are UTC. The current month is
incomplete: counts are added until final is shown.`,
		Example: "  gatewayctl company usage Acme --month 2026-10",
		Args:    command.ExactArgs("COMPANY"), ValidArgsFunction: operator.CompleteCompanies(c),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			var at time.Time
			if month != "" {
				var err error
				if at, err = time.Parse(monthFormat, month); err != nil {
					return nil, command.Usagef("--month %q must be a month such as 2026-10", month)
				}
			}
			company, err := operator.FindCompany(ctx, s, args[0])
			if err != nil {
				return nil, err
			}
			return viewUsage(ctx, usage.New(s.DB()), company, at)
		}),
	}
	cmd.Flags().StringVar(&month, "month", "", "the `MONTH`, such as 2026-10; default: the current one (UTC)")
	return cmd
}

func viewUsage(ctx context.Context, s *usage.Store, company tenant.Company, at time.Time) (output.Result, error) {
	m, err := s.Month(ctx, company.ID, at)
	switch {
	case errors.Is(err, usage.ErrFuture):
		return nil, command.Usagef("--month %s has not begun (UTC)", at.Format(monthFormat))
	case errors.Is(err, usage.ErrUncounted):
		return nil, command.Usagef("--month %s is not counted: usage of the company is counted from %s on", at.Format(monthFormat), output.Timestamp(m.CountedFrom))
	case err != nil:
		return nil, err
	}
	v := usagecommand.View{CompanyID: &company.ID, Company: company.Name, Month: m.Begin.Format(monthFormat), Final: m.Final, Total: m.Total, Days: []usagecommand.Day{}}
	if m.CountedFrom.After(m.Begin) {
		v.CountedFrom = &m.CountedFrom
	}
	for _, d := range m.Days {
		v.Days = append(v.Days, usagecommand.Day{Date: d.Date.Format(time.DateOnly), Counts: d.Counts})
	}
	v.Quotas, err = s.Quotas(ctx, company.ID)
	return v, err
}

// monthFormat is how a month is written.
const monthFormat = "2006-01"
