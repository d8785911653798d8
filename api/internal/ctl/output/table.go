package output

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// Table writes rows with their columns aligned, each indented by indent.
func Table(w io.Writer, indent string, rows [][]string) {
	var aligned bytes.Buffer
	columns := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = Printable(cell)
		}
		fmt.Fprintln(columns, strings.Join(row, "\t"))
	}
	_ = columns.Flush() // into memory
	for line := range strings.Lines(aligned.String()) {
		fmt.Fprintln(w, strings.TrimRight(indent+line, " \n"))
	}
}

// Printable replaces control characters in foreign text (subjects, provider messages) that
// would move the cursor or break a table.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

// Warnings prints each warning in a paragraph of its own.
func Warnings(w io.Writer, warnings []string) {
	for _, warning := range warnings {
		fmt.Fprintf(w, "\nWarning: %s\n", warning)
	}
}

// PrintMore says that a list is incomplete if more is set.
func PrintMore(w io.Writer, more bool) {
	if more {
		fmt.Fprintln(w, "\nThere may be more: raise --limit.")
	}
}
