// Package output formats what commands print: results as text or JSON, tables, times, numbers,
// words of shell commands, and progress on a terminal.
package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Result is the result of a command: --json prints its exported fields, otherwise WriteText
// prints it.
type Result interface {
	WriteText(w io.Writer)
}

// Failing is a result that may report a failure: it is printed like any other, and the exit
// code is 1.
type Failing interface {
	Failure() error
}

// Print writes the whole result with one call, so that a broken pipe is detected. nil means
// that the command has written its output itself.
func Print(w io.Writer, r Result, asJSON bool) error {
	if r == nil {
		return nil
	}
	var page bytes.Buffer
	if asJSON {
		encoder := json.NewEncoder(&page)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(r); err != nil {
			return fmt.Errorf("encode answer: %w", err)
		}
	} else {
		r.WriteText(&page)
	}
	if _, err := w.Write(page.Bytes()); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	if bad, ok := r.(Failing); ok {
		return bad.Failure()
	}
	return nil
}
