package suppression

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
	suppressionstore "email-gateway/shared/store/suppression"
)

const (
	// importers is the number of concurrent requests: enough for 200 a second, the default rate
	// of a key, at 40 ms per request.
	importers = 8
	// maxRefused is how many rejected lines are listed; the rest is only counted.
	maxRefused = 100
)

func importCommand(c *command.Invocation) *cobra.Command {
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
		Args: command.ExactArgs("FILE"),
		RunE: tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
			if err := checkReason(&r.Reason); err != nil {
				return nil, err
			}
			encoding, err := csvfile.ParseEncoding(encodingName)
			if err != nil {
				return nil, command.Usagef("--encoding: %v", err)
			}
			lines, done, err := openAddresses(c, args[0], encoding)
			if err != nil {
				return nil, err
			}
			defer done()
			return importAddresses(ctx, c, api, lines, r)
		}),
	}
	cmd.Flags().StringVar(&r.Note, "note", "", "a note for lines without one, a `TEXT` of at most 200 characters")
	cmd.Flags().StringVar(&encodingName, "encoding", "", tenant.EncodingUsage)
	command.CompleteFlag(cmd, "encoding", csvfile.Encodings())
	return suppressionReasonFlag(cmd, &r.Reason, string(suppressionstore.Manual), "if a line has none")
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

func (v imported) Failure() error {
	if v.Refused == 0 {
		return nil
	}
	return fmt.Errorf("%s rejected", output.Count(v.Refused, "line was", "lines were"))
}

func (v imported) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s of %s suppressed.\n", output.Thousands(v.Suppressed), output.Count(v.Lines, "line is", "lines are"))
	for _, f := range v.Faults {
		fmt.Fprintf(w, "line %d: %s (%s)\n", f.Line, output.Printable(f.Message), f.Code)
	}
	if v.Refused > len(v.Faults) {
		fmt.Fprintf(w, "and %s more\n", output.Thousands(v.Refused-len(v.Faults)))
	}
}

// importAddresses sends the lines with concurrent requests.
func importAddresses(ctx context.Context, c *command.Invocation, api *client.Client, lines iter.Seq2[addressLine, error], usual suppressRequest) (output.Result, error) {
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
	v := collect(c, refused, &taken)
	v.Lines, v.Suppressed = <-read, int(taken.Load())
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("%w\n%s before that; import the file again for the rest", err, output.Count(v.Suppressed, "address was suppressed", "addresses were suppressed"))
	}
	return v, nil
}

// collect gathers rejected lines until all requests are done, and shows the progress.
func collect(c *command.Invocation, refused <-chan refusedLine, taken *atomic.Int64) imported {
	v := imported{Faults: []refusedLine{}}
	p := c.Progress()
	defer p.End()
	tick := time.NewTicker(output.RedrawInterval)
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
			p.Update(output.Step{What: "Importing", Text: output.Thousands(int(taken.Load())) + " suppressed, " + output.Thousands(v.Refused) + " rejected"})
		}
	}
}

func orElse(text, usual string) string {
	if text == "" {
		return usual
	}
	return text
}
