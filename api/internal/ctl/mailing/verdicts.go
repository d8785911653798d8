package mailing

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
)

func verdictsCommand(c *command.Invocation) *cobra.Command {
	var delimiter string
	cmd := &cobra.Command{
		Use: "verdicts ID", Short: "Download the validation results of rejected lines, as CSV",
		Long: `Writes CSV to standard output with the columns line, column, code and lastLine, in the order of
the file: unreadable lines, duplicates and invalid addresses. lastLine is empty unless the row
has several lines, and for invalid addresses. The output contains no values of the file. It is
streamed; if it is interrupted, the exit code is 1.`,
		Example: "  gatewayctl mailing verdicts 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b > verdicts.csv",
		Args:    command.ExactArgs("ID"), ValidArgsFunction: completeMailings(c),
		RunE: tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
			id, err := parseMailing(args[0])
			if err != nil {
				return nil, err
			}
			path := mailingPath + "/" + id.String() + "/verdicts"
			query, err := csvQuery(c, delimiter)
			if err != nil {
				return nil, err
			}
			if !c.JSON {
				return nil, api.Download(ctx, path, query, c.Stdout)
			}
			csv, download := io.Pipe()
			go func() { _ = download.CloseWithError(api.Download(ctx, path, nil, download)) }() // always nil
			defer func() { _ = csv.Close() }()
			return nil, writeVerdicts(c.Stdout, csv)
		}),
	}
	delimiterFlag(cmd, &delimiter)
	return cmd
}

// verdict is the validation result of a rejected line.
type verdict struct {
	Line     int    `json:"line"`
	Column   string `json:"column,omitempty"` // empty if the whole line is invalid
	Code     string `json:"code"`
	LastLine int    `json:"lastLine,omitempty"` // of a row of several lines
}

// writeVerdicts converts the CSV to {"verdicts": […]}, line by line.
func writeVerdicts(to io.Writer, list io.Reader) error {
	w := bufio.NewWriter(to)
	reader := csv.NewReader(list)
	names, err := reader.Read()
	if err == nil && len(names) < 4 {
		err = fmt.Errorf("it has the columns %v: is the api of the same release?", names)
	}
	if err != nil {
		return fmt.Errorf("read list: %w", err)
	}
	separator := `{"verdicts":[`
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(fmt.Errorf("read list: %w", err), w.Flush())
		}
		line, err := strconv.Atoi(record[0])
		if err != nil {
			return fmt.Errorf("read list: %w", err)
		}
		last, _ := strconv.Atoi(record[3]) // empty = 0
		text, err := json.Marshal(verdict{line, record[1], record[2], last})
		if err != nil {
			return fmt.Errorf("encode verdict: %w", err)
		}
		fmt.Fprint(w, separator, "\n  ", string(text))
		separator = ","
	}
	if separator == "," {
		separator = "\n"
	}
	fmt.Fprintln(w, separator+"]}")
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write list: %w", err)
	}
	return nil
}
