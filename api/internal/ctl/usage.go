package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/shared/store"
	"email-gateway/shared/store/usage"
)

// usagePath is the api's route.
const usagePath = "/v1/usage"

func (c *control) usage() *cobra.Command {
	var month string
	var asCSV bool
	cmd := &cobra.Command{
		Use: "usage", Short: "Show what the company used in a month, by day",
		Long: `Shows how many emails the company sent in a month, by day, what SES reported about them, its mailings
and bytes, and the use of its quotas. Days are UTC. Each count belongs to the day on which the gateway
recorded it, so a late bounce counts in the month of SES's report. Counts are up to half a minute old.
--csv writes a row per day and the total, for spreadsheets.

It needs API_KEY with the scope emails:read. Operators use gatewayctl company usage.`,
		Example: `  gatewayctl usage
  gatewayctl usage --month 2026-10 --csv > usage-2026-10.csv`,
		Args: exactArgs(),
		RunE: c.call(func(ctx context.Context, api *client.Client, _ []string) (answer, error) {
			query := url.Values{}
			if month != "" {
				query.Set("month", month)
			}
			if asCSV && c.json {
				return nil, usagef("give --csv or --json, not both")
			}
			if asCSV {
				query.Set("format", "csv")
				return nil, api.Download(ctx, usagePath, query, c.Stdout)
			}
			var v usageView
			err := api.Get(ctx, usagePath, query, &v)
			return v, err
		}),
	}
	cmd.Flags().StringVar(&month, "month", "", "the `MONTH`, such as 2026-10; default: the current one (UTC)")
	cmd.Flags().BoolVar(&asCSV, "csv", false, "write CSV: a row per day, and the total")
	return cmd
}

func (c *control) companyUsage() *cobra.Command {
	var month string
	cmd := &cobra.Command{
		Use: "usage COMPANY", Short: "Show what a company used in a month, by day",
		Long: `Shows how many emails the company sent in a month, by day, what SES reported about them, its mailings
and bytes, and the use of its quotas, as GET /v1/usage does. Days are UTC. The current month is not
over: until final is shown, counts are added.`,
		Example: "  gatewayctl company usage Acme --month 2026-10",
		Args:    exactArgs("COMPANY"), ValidArgsFunction: c.completeCompanies(),
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			var at time.Time
			if month != "" {
				var err error
				if at, err = time.Parse(monthFormat, month); err != nil {
					return nil, usagef("--month %q must be a month such as 2026-10", month)
				}
			}
			company, err := findCompany(ctx, s, args[0])
			if err != nil {
				return nil, err
			}
			return viewUsage(ctx, usage.New(s.DB()), company, at)
		}),
	}
	cmd.Flags().StringVar(&month, "month", "", "the `MONTH`, such as 2026-10; default: the current one (UTC)")
	return cmd
}

// monthFormat is how a month is written.
const monthFormat = "2006-01"

// usageView is the usage of a month. Its JSON names are those of the HTTP API.
type usageView struct {
	CompanyID   *uuid.UUID    `json:"companyId,omitempty"` // for operators
	Company     string        `json:"company,omitempty"`
	Month       string        `json:"month"`
	Final       bool          `json:"final"`
	CountedFrom *time.Time    `json:"countedFrom,omitempty"`
	Total       usage.Counts  `json:"total"`
	Days        []usageDay    `json:"days"`
	Quotas      []usage.Quota `json:"quotas"`
}

type usageDay struct {
	Date string `json:"date"`
	usage.Counts
}

func viewUsage(ctx context.Context, s *usage.Store, company store.Company, at time.Time) (answer, error) {
	m, err := s.Month(ctx, company.ID, at)
	switch {
	case errors.Is(err, usage.ErrFuture):
		return nil, usagef("--month %s has not begun (UTC)", at.Format(monthFormat))
	case errors.Is(err, usage.ErrUncounted):
		return nil, usagef("--month %s is not counted: usage of the company is counted from %s on", at.Format(monthFormat), stamp(m.CountedFrom))
	case err != nil:
		return nil, err
	}
	v := usageView{CompanyID: &company.ID, Company: company.Name, Month: m.Begin.Format(monthFormat), Final: m.Final, Total: m.Total, Days: []usageDay{}}
	if m.CountedFrom.After(m.Begin) {
		v.CountedFrom = &m.CountedFrom
	}
	for _, d := range m.Days {
		v.Days = append(v.Days, usageDay{Date: d.Date.Format(time.DateOnly), Counts: d.Counts})
	}
	v.Quotas, err = s.Quotas(ctx, company.ID)
	return v, err
}

func (v usageView) text(w io.Writer) {
	title := v.Month
	if v.Company != "" {
		title = printable(v.Company) + ", " + title
	}
	if v.Final {
		title += ", final"
	}
	fmt.Fprintln(w, title)
	if v.CountedFrom != nil {
		fmt.Fprintf(w, "Counted from %s on.\n", stamp(*v.CountedFrom))
	}
	fmt.Fprintln(w)
	rows := [][]string{{"DAY (UTC)", "ACCEPTED", "SENT", "DELIVERED", "BOUNCED", "COMPLAINED", "MAILINGS", "BYTES"}}
	for _, d := range v.Days {
		if d.Counts != (usage.Counts{}) {
			rows = append(rows, usageRow(d.Date, d.Counts))
		}
	}
	table(w, "  ", append(rows, usageRow("total", v.Total)))
	fmt.Fprintln(w)
	quotas := [][]string{{"QUOTA", "LIMIT", "IN USE NOW"}}
	for _, q := range v.Quotas {
		limit := "unlimited"
		if q.Limit > 0 {
			limit = thousands(int(q.Limit))
		}
		quotas = append(quotas, []string{q.Name, limit, thousands(int(q.Use))})
	}
	table(w, "  ", quotas)
}

func usageRow(name string, c usage.Counts) []string {
	row := []string{name}
	for _, n := range []int64{c.Accepted, c.Sent, c.Delivered, c.Bounced, c.Complained, c.Mailings, c.Bytes} {
		row = append(row, thousands(int(n)))
	}
	return row
}
