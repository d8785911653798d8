package ctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/csvfile"
	"email-gateway/shared/store"
)

const (
	// importers is the number of concurrent requests: enough for 200 a second, the default rate
	// of a key, at 40 ms per request.
	importers = 8
	// maxRefused is how many rejected lines are listed; the rest is only counted.
	maxRefused = 100
)

func (c *control) suppressionImport() *cobra.Command {
	var r suppressRequest
	var encodingName string
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Suppress every address in a file",
		Long: `Suppresses every address in a file: one per line, or a CSV file with a column of addresses, as
exported by other providers; the columns reason and note are used if present. - is standard
input, one address per line.

A rejected line is reported, the others are imported, and the exit code is 1. Importing the
same file again changes nothing. Memory use does not depend on the file's size. The import
runs at the key's rate limit: 200 lines per second by default.`,
		Example: `  gatewayctl suppression import bounced.txt --reason BOUNCE
  gatewayctl suppression import unsubscribed.csv --reason UNSUBSCRIBE --note 'from the old system'`,
		Args: exactArgs("FILE"),
		RunE: c.call(func(ctx context.Context, api *client.Client, args []string) (answer, error) {
			if err := checkReason(&r.Reason); err != nil {
				return nil, err
			}
			encoding, err := csvfile.ParseEncoding(encodingName)
			if err != nil {
				return nil, usagef("--encoding: %v", err)
			}
			lines, done, err := c.openAddresses(args[0], encoding)
			if err != nil {
				return nil, err
			}
			defer done()
			return c.importAddresses(ctx, api, lines, r)
		}),
	}
	cmd.Flags().StringVar(&r.Note, "note", "", "a note for lines without one, a `TEXT` of at most 200 characters")
	cmd.Flags().StringVar(&encodingName, "encoding", "", encodingUsage)
	complete(cmd, "encoding", csvfile.Encodings())
	return suppressionReasonFlag(cmd, &r.Reason, string(store.Manual), "if a line has none")
}

// addressLine is one address of the file.
type addressLine struct {
	line                  int
	address, reason, note string
}

// refusedLine is a rejected line.
type refusedLine struct {
	Line    int    `json:"line"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// imported is the result of an import.
type imported struct {
	Lines      int           `json:"lines"`
	Suppressed int           `json:"suppressed"`
	Refused    int           `json:"refused"`
	Faults     []refusedLine `json:"faults"` // the first maxRefused rejected lines
}

func (v imported) failure() error {
	if v.Refused == 0 {
		return nil
	}
	return fmt.Errorf("%s rejected", plurals(v.Refused, "line was", "lines were"))
}

func (v imported) text(w io.Writer) {
	fmt.Fprintf(w, "%s of %s suppressed.\n", thousands(v.Suppressed), plurals(v.Lines, "line is", "lines are"))
	for _, f := range v.Faults {
		fmt.Fprintf(w, "line %d: %s (%s)\n", f.Line, printable(f.Message), f.Code)
	}
	if v.Refused > len(v.Faults) {
		fmt.Fprintf(w, "and %s more\n", thousands(v.Refused-len(v.Faults)))
	}
}

// openAddresses opens the file and detects its format.
func (c *control) openAddresses(path string, encoding csvfile.Encoding) (lines iter.Seq2[addressLine, error], done func(), err error) {
	if path == "-" {
		return addressesIn(c.Stdin), func() {}, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, usagef("%v", err)
	}
	done = func() { _ = file.Close() }
	inspector := csvfile.NewInspector()
	if _, err := io.Copy(inspector, file); err != nil {
		done()
		return nil, nil, fmt.Errorf("read %s: %w", path, err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		done()
		return nil, nil, usagef("%s cannot be read twice: pass it on standard input, one address per line", path)
	}
	seen := inspector.Inspection()
	reader, err := csvfile.Open(file, seen, csvfile.Options{Encoding: encoding})
	var wrong *csvfile.FileError
	switch {
	case err == nil:
		return rowsIn(reader), done, nil
	case errors.As(err, &wrong) && wrong.Code == csvfile.CodeNoHeader: // the first line is an address
		var list io.Reader
		if _, err = file.Seek(0, io.SeekStart); err == nil {
			list, err = csvfile.Decode(file, seen, encoding)
		}
		if err == nil {
			return addressesIn(list), done, nil
		}
	}
	done()
	return nil, nil, fmt.Errorf("%s: %w", path, err)
}

// addressesIn reads one address per line.
func addressesIn(r io.Reader) iter.Seq2[addressLine, error] {
	return func(yield func(addressLine, error) bool) {
		scanner := bufio.NewScanner(r)
		for n := 1; scanner.Scan(); n++ {
			text := strings.TrimSpace(strings.TrimPrefix(scanner.Text(), "\ufeff"))
			if text != "" && !strings.HasPrefix(text, "#") && !yield(addressLine{line: n, address: text}, nil) {
				return
			}
		}
		if err := scanner.Err(); err != nil {
			yield(addressLine{}, fmt.Errorf("read addresses: %w", err))
		}
	}
}

// rowsIn reads the rows of a CSV file.
func rowsIn(reader *csvfile.Reader) iter.Seq2[addressLine, error] {
	header := reader.Header()
	reason, note := header.Index("reason"), header.Index("note")
	return func(yield func(addressLine, error) bool) {
		for {
			row, err := reader.Next()
			var broken *csvfile.RowError
			switch {
			case errors.Is(err, io.EOF):
				return
			case errors.As(err, &broken):
				if !yield(addressLine{line: broken.Line}, broken) {
					return
				}
				continue
			case err != nil:
				yield(addressLine{}, err)
				return
			}
			if !yield(addressLine{
				line: row.Line, address: string(row.Field(header.Email)),
				reason: strings.ToUpper(string(row.Field(reason))), note: string(row.Field(note)),
			}, nil) {
				return
			}
		}
	}
}

// importAddresses sends the lines with concurrent requests.
func (c *control) importAddresses(ctx context.Context, api *client.Client, lines iter.Seq2[addressLine, error], usual suppressRequest) (answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		handed  = make(chan addressLine)
		refused = make(chan refusedLine)
		taken   atomic.Int64
		workers sync.WaitGroup
	)
	for range importers {
		workers.Go(func() {
			for l := range handed {
				r := suppressRequest{Address: l.address, Reason: orElse(l.reason, usual.Reason), Note: orElse(l.note, usual.Note)}
				err := api.PostAgain(ctx, suppressionPath, r, nil)
				var problem *client.Problem
				switch {
				case err == nil:
					taken.Add(1)
				case errors.As(err, &problem) && len(problem.Faults) > 0:
					refused <- refusedLine{l.line, problem.Faults[0].Code, problem.Faults[0].Field + " " + problem.Faults[0].Message}
				default:
					cancel(err) // the error would repeat for every line
				}
			}
		})
	}
	read := make(chan int, 1)
	go func() {
		n := 0
		defer func() {
			close(handed)
			workers.Wait()
			close(refused)
			read <- n
		}()
		for l, err := range lines {
			var broken *csvfile.RowError
			switch {
			case errors.As(err, &broken):
				n++
				refused <- refusedLine{l.line, broken.Code, broken.Error()}
				continue
			case err != nil:
				cancel(err)
				return
			}
			n++
			select {
			case handed <- l:
			case <-ctx.Done():
				return
			}
		}
	}()
	v := c.collect(refused, &taken)
	v.Lines, v.Suppressed = <-read, int(taken.Load())
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("%w\n%s before that; import the file again for the rest", err, plurals(v.Suppressed, "address was suppressed", "addresses were suppressed"))
	}
	return v, nil
}

// collect gathers rejected lines until all requests are done, and shows the progress.
func (c *control) collect(refused <-chan refusedLine, taken *atomic.Int64) imported {
	v := imported{Faults: []refusedLine{}}
	p := c.progress()
	defer p.end()
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	for {
		select {
		case f, open := <-refused:
			if !open {
				return v
			}
			if v.Refused++; len(v.Faults) < maxRefused {
				v.Faults = append(v.Faults, f)
			}
		case <-tick.C:
			p.update(step{what: "Importing", text: thousands(int(taken.Load())) + " suppressed, " + thousands(v.Refused) + " rejected"})
		}
	}
}

func orElse(text, usual string) string {
	if text == "" {
		return usual
	}
	return text
}
