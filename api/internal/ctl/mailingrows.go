package ctl

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
)

func (c *control) mailingRows() *cobra.Command {
	var status string
	cmd := &cobra.Command{
		Use: "rows ID", Short: "Download every row of a mailing's file and what became of it, as CSV",
		Long: `Writes CSV to standard output, a line for each row of the file in its order: the line's
number, address and status, and why it is not sent, as a code and in words. The list is
written as it comes, however long it is; one that breaks off ends with 1.`,
		Example: "  gatewayctl mailing rows 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --status FAILED > failed.csv",
		Args:    needs("ID"), ValidArgsFunction: c.completeMailings,
		RunE: c.call(func(ctx context.Context, api *client.Client, args []string) (answer, error) {
			id, err := parseMailing(args[0])
			if err != nil {
				return nil, err
			}
			path, query := mailingPath+"/"+id.String()+"/rows", url.Values{}
			if status != "" {
				query.Set("status", strings.ToUpper(status))
			}
			if c.json {
				return nil, writeRows(ctx, api, path, query, c.Stdout)
			}
			query.Set("format", "csv")
			return nil, api.Download(ctx, path, query, c.Stdout)
		}),
	}
	cmd.Flags().StringVar(&status, "status", "", "only those of a `STATUS`, such as FAILED")
	complete(cmd, "status", []string{"PENDING", "INVALID", "QUEUED", "SENT", "FAILED", "EXPIRED", "CANCELLED", "SUPPRESSED", "DUPLICATE"})
	return cmd
}

// writeRows writes {"rows": […]}, one page after the other.
func writeRows(ctx context.Context, api *client.Client, path string, query url.Values, to io.Writer) error {
	w := bufio.NewWriter(to)
	query.Set("limit", strconv.Itoa(perPage))
	separator, end := `{"rows":[`, `{"rows":[]}`
	for {
		var p struct {
			Rows       []json.RawMessage `json:"rows"`
			NextCursor string            `json:"nextCursor"`
		}
		if err := api.Get(ctx, path, query, &p); err != nil {
			_ = w.Flush() // what was read is not lost; the error says that it is not all
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
