package ctl

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
)

func (c *control) mailingVerdicts() *cobra.Command {
	return &cobra.Command{
		Use: "verdicts ID", Short: "Download the lines that are not sent to, and why, as CSV",
		Long: `Writes CSV to standard output, with the columns line, column and code, in the order of the
file: lines that cannot be read, duplicates and invalid addresses. It holds no value of the
file. The list is written as it comes, however long it is; one that breaks off ends with 1.`,
		Example: "  gatewayctl mailing verdicts 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b > verdicts.csv",
		Args:    needs("ID"), ValidArgsFunction: c.completeMailings,
		RunE: c.call(func(ctx context.Context, api *client.Client, args []string) (answer, error) {
			id, err := parseMailing(args[0])
			if err != nil {
				return nil, err
			}
			path := mailingPath + "/" + id.String() + "/verdicts"
			if !c.json {
				return nil, api.Download(ctx, path, nil, c.Stdout)
			}
			csv, download := io.Pipe()
			go func() { _ = download.CloseWithError(api.Download(ctx, path, nil, download)) }() // which is always nil
			defer func() { _ = csv.Close() }()
			return nil, writeVerdicts(c.Stdout, csv)
		}),
	}
}

// verdict is a line that is not sent to.
type verdict struct {
	Line   int    `json:"line"`
	Column string `json:"column,omitempty"` // none where the line as a whole is at fault
	Code   string `json:"code"`
}

// writeVerdicts turns the CSV into {"verdicts": […]}, one line at a time.
func writeVerdicts(to io.Writer, list io.Reader) error {
	w := bufio.NewWriter(to)
	reader := csv.NewReader(list)
	reader.FieldsPerRecord = 3
	if _, err := reader.Read(); err != nil { // the columns' names
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
		text, err := json.Marshal(verdict{line, record[1], record[2]})
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
