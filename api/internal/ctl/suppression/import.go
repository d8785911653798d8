package suppression

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
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
exported by other providers; the columns reason and note are used if present. A reason that is
none of the four, such as a mail server's answer, is the note of a line without one, and the
line's reason is that of --reason. Notes become one line of at most 200 characters. - is
standard input, one address per line.

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
	Lines      int `json:"lines"`
	Suppressed int `json:"suppressed"`
	Refused    int `json:"refused"`
	// OtherReasons are lines whose reason is a text, ChangedNotes lines whose note is shortened or on one line now.
	OtherReasons int           `json:"otherReasons"`
	ChangedNotes int           `json:"changedNotes"`
	Faults       []refusedLine `json:"faults"` // the first maxRefused rejected lines
}

func (v imported) Failure() error {
	if v.Refused == 0 {
		return nil
	}
	return fmt.Errorf("%s rejected", output.Count(v.Refused, "line was", "lines were"))
}

func (v imported) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s of %s suppressed.\n", output.Thousands(v.Suppressed), output.Count(v.Lines, "line is", "lines are"))
	if v.OtherReasons > 0 {
		fmt.Fprintf(w, "%s a reason that is none of %s: it is the line's note, unless the line has one, and the reason is that of --reason.\n",
			output.Count(v.OtherReasons, "line has", "lines have"), strings.Join(reasons(), ", "))
	}
	if v.ChangedNotes > 0 {
		fmt.Fprintf(w, "%s changed to one line of at most %d characters.\n", output.Count(v.ChangedNotes, "note was", "notes were"), maxNote)
	}
	for _, f := range v.Faults {
		fmt.Fprintf(w, "line %d: %s (%s)\n", f.Line, output.Printable(f.Message), f.Code)
	}
	if v.Refused > len(v.Faults) {
		fmt.Fprintf(w, "and %s more\n", output.Thousands(v.Refused-len(v.Faults)))
	}
}

// add counts a line.
func (v *imported) add(l addressLine) {
	v.Lines++
	if l.otherReason {
		v.OtherReasons++
	}
	if l.changedNote {
		v.ChangedNotes++
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
	read := make(chan imported, 1)
	go func() {
		var n imported
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
				n.Lines++
				refused <- refusedLine{l.line, broken.Code, broken.Error()}
				continue
			case err != nil:
				cancel(err)
				return
			}
			n.add(l)
			select {
			case handed <- l:
			case <-ctx.Done():
				return
			}
		}
	}()
	faults := collect(c, refused, &taken)
	v := <-read
	v.Refused, v.Faults, v.Suppressed = faults.Refused, faults.Faults, int(taken.Load())
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
