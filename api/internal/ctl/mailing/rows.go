package mailing

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
)

func rowsCommand(c *command.Invocation) *cobra.Command {
	var status, delimiter string
	cmd := &cobra.Command{
		Use: "rows ID", Short: "Download the status of every row of a mailing's file, as CSV",
		Long: `Writes CSV to standard output, one line for each row of the file, in its order: the line
number, the address and status, why it is not sent, as a code and a text, and the delivery state of
its email with time and reason. Excel opens the file by a double click if --delimiter is the list
separator of its system, such as ; in Portuguese: the file then begins with a byte order mark. The
output is streamed; if it is interrupted, the exit code is 1.`,
		Example: "  gatewayctl mailing rows 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --status FAILED > failed.csv\n" +
			"  gatewayctl mailing rows 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --delimiter ';' > rows.csv",
		Args: command.ExactArgs("ID"), ValidArgsFunction: completeMailings(c),
		RunE: tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
			id, err := parseMailing(args[0])
			if err != nil {
				return nil, err
			}
			path := mailingPath + "/" + id.String() + "/rows"
			query, err := csvQuery(c, delimiter)
			if err != nil {
				return nil, err
			}
			if status != "" {
				query.Set("status", strings.ToUpper(status))
			}
			if c.JSON {
				return nil, writeRows(ctx, api, path, query, c.Stdout)
			}
			query.Set("format", "csv")
			return nil, api.Download(ctx, path, query, c.Stdout)
		}),
	}
	cmd.Flags().StringVar(&status, "status", "", "only rows with this `STATUS`, such as FAILED")
	delimiterFlag(cmd, &delimiter)
	command.CompleteFlag(cmd, "status", []string{"PENDING", "INVALID", "QUEUED", "SENT", "FAILED", "EXPIRED", "CANCELLED", "SUPPRESSED", "DUPLICATE"})
	return cmd
}

// delimiterFlag adds the flag --delimiter to a command that downloads a CSV.
func delimiterFlag(cmd *cobra.Command, delimiter *string) {
	cmd.Flags().StringVar(delimiter, "delimiter", "", "`CHARACTER` between fields: , ; | or tab (default ,)")
}

// csvQuery returns the parameters of a download.
func csvQuery(c *command.Invocation, delimiter string) (url.Values, error) {
	query := url.Values{}
	switch {
	case delimiter == "":
	case c.JSON:
		return nil, command.Usagef("--delimiter is only for CSV: leave out --delimiter or --json")
	default:
		query.Set("delimiter", delimiter)
	}
	return query, nil
}

// writeRows writes {"rows": […]}, page by page.
func writeRows(ctx context.Context, api *client.Client, path string, query url.Values, to io.Writer) error {
	w := bufio.NewWriter(to)
	query.Set("limit", strconv.Itoa(tenant.PageSize))
	separator, end := `{"rows":[`, `{"rows":[]}`
	for {
		var p struct {
			Rows       []json.RawMessage `json:"rows"`
			NextCursor string            `json:"nextCursor"`
		}
		if err := api.Get(ctx, path, query, &p); err != nil {
			_ = w.Flush() // keep the rows read so far; the error says that the list is incomplete
			return err
		}
		for _, row := range p.Rows {
			fmt.Fprint(w, separator, "\n  ", string(row))
			separator, end = ",", "\n]}"
		}
		if p.NextCursor == "" {
			break
		}
		query.Set("cursor", p.NextCursor)
	}
	fmt.Fprintln(w, end)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write list: %w", err)
	}
	return nil
}
