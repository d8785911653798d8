package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// answer is the result of a command: --json prints its exported fields, otherwise text
// prints it.
type answer interface {
	text(w io.Writer)
}

// failing is an answer that may report a failure: it is printed like any other, and the exit
// code is 1.
type failing interface {
	failure() error
}

// print prints the answer, as JSON if --json is set.
func (c *control) print(a answer) error { return printAnswer(c.Stdout, a, c.json) }

// printAnswer writes the whole answer with one call, so that a broken pipe is detected. nil
// means that the command has written its output itself.
func printAnswer(w io.Writer, a answer, asJSON bool) error {
	if a == nil {
		return nil
	}
	var page bytes.Buffer
	if asJSON {
		encoder := json.NewEncoder(&page)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(a); err != nil {
			return fmt.Errorf("encode answer: %w", err)
		}
	} else {
		a.text(&page)
	}
	if _, err := w.Write(page.Bytes()); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	if bad, ok := a.(failing); ok {
		return bad.failure()
	}
	return nil
}

// table writes rows with their columns aligned, each indented by indent.
func table(w io.Writer, indent string, rows [][]string) {
	var aligned bytes.Buffer
	columns := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = printable(cell)
		}
		fmt.Fprintln(columns, strings.Join(row, "\t"))
	}
	_ = columns.Flush() // into memory
	for line := range strings.Lines(aligned.String()) {
		fmt.Fprintln(w, strings.TrimRight(indent+line, " \n"))
	}
}

// printable replaces control characters in foreign text (subjects, provider messages) that
// would move the cursor or break a table.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

// shellWord quotes s as one word of a shell command, so that printed commands can be pasted.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-@:/", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// stamp formats a time to the second, stampMS to the millisecond. Both are UTC, as in the
// logs.
func stamp(t time.Time) string   { return t.UTC().Format("2006-01-02 15:04:05Z") }
func stampMS(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000Z") }

// moment formats a time with its distance from now.
func moment(t, now time.Time) string {
	if d := t.Sub(now); d > 0 {
		return stamp(t) + " (in " + span(d) + ")"
	}
	return stamp(t) + " (" + span(now.Sub(t)) + " ago)"
}

// span formats a duration with at most two units.
func span(d time.Duration) string {
	units := func(big int, bigName string, small int, smallName string) string {
		if small == 0 {
			return fmt.Sprintf("%d %s", big, bigName)
		}
		return fmt.Sprintf("%d %s %d %s", big, bigName, small, smallName)
	}
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + span(-d)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return units(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 2*day:
		return units(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	default:
		return units(int(d/day), "d", int(d.Hours())%24, "h")
	}
}

// plural is "1 try", "2 tries".
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
