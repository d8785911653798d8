// Package usage implements gatewayctl usage, which shows a tenant its usage of a month.
package usage

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
	"email-gateway/shared/store/usage"
)

// usagePath is the api's route.
const usagePath = "/v1/usage"

// Command returns the command `gatewayctl usage`.
func Command(c *command.Invocation) *cobra.Command {
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
		Args: command.ExactArgs(),
		RunE: tenant.Run(c, func(ctx context.Context, api *client.Client, _ []string) (output.Result, error) {
			query := url.Values{}
			if month != "" {
				query.Set("month", month)
			}
			if asCSV && c.JSON {
				return nil, command.Usagef("give --csv or --json, not both")
			}
			if asCSV {
				query.Set("format", "csv")
				return nil, api.Download(ctx, usagePath, query, c.Stdout)
			}
			var v View
			err := api.Get(ctx, usagePath, query, &v)
			return v, err
		}),
	}
	cmd.Flags().StringVar(&month, "month", "", "the `MONTH`, such as 2026-10; default: the current one (UTC)")
	cmd.Flags().BoolVar(&asCSV, "csv", false, "write CSV: a row per day, and the total")
	return cmd
}

// View is the usage of a month. Its JSON names are those of the HTTP API.
type View struct {
	CompanyID   *uuid.UUID    `json:"companyId,omitempty"` // for operators
	Company     string        `json:"company,omitempty"`
	Month       string        `json:"month"`
	Final       bool          `json:"final"`
	CountedFrom *time.Time    `json:"countedFrom,omitempty"`
	Total       usage.Counts  `json:"total"`
	Days        []Day         `json:"days"`
	Quotas      []usage.Quota `json:"quotas"`
}

// Day is the usage of one day (UTC).
type Day struct {
	Date string `json:"date"`
	usage.Counts
}

// WriteText writes the usage by day, the total and the quotas.
func (v View) WriteText(w io.Writer) {
	title := v.Month
	if v.Company != "" {
		title = output.Printable(v.Company) + ", " + title
	}
	if v.Final {
		title += ", final"
	}
	fmt.Fprintln(w, title)
	if v.CountedFrom != nil {
		fmt.Fprintf(w, "Counted from %s on.\n", output.Timestamp(*v.CountedFrom))
	}
	fmt.Fprintln(w)
	rows := [][]string{{"DAY (UTC)", "ACCEPTED", "SENT", "DELIVERED", "BOUNCED", "COMPLAINED", "MAILINGS", "BYTES"}}
	for _, d := range v.Days {
		if d.Counts != (usage.Counts{}) {
			rows = append(rows, countsRow(d.Date, d.Counts))
		}
	}
	output.Table(w, "  ", append(rows, countsRow("total", v.Total)))
	fmt.Fprintln(w)
	quotas := [][]string{{"QUOTA", "LIMIT", "IN USE NOW"}}
	for _, q := range v.Quotas {
		limit := "unlimited"
		if q.Limit > 0 {
			limit = output.Thousands(int(q.Limit))
		}
		quotas = append(quotas, []string{q.Name, limit, output.Thousands(int(q.Use))})
	}
	output.Table(w, "  ", quotas)
}

func countsRow(name string, c usage.Counts) []string {
	row := []string{name}
	for _, n := range []int64{c.Accepted, c.Sent, c.Delivered, c.Bounced, c.Complained, c.Mailings, c.Bytes} {
		row = append(row, output.Thousands(int(n)))
	}
	return row
}
