// Package command provides what all commands of gatewayctl share: the invocation with its
// environment and global flags, groups of commands, arguments, flags, usage errors and shell
// completion.
package command

import (
	"io"
	"slices"
	"strings"

	"email-gateway/api/internal/ctl/output"
)

// Process is the environment, the user and the standard streams of gatewayctl.
type Process struct {
	Environ []string // "NAME=value" lines
	Login   string   // login name of the user; "" = unknown
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
}

// Getenv returns the value of a variable, "" if it is not set.
func (p Process) Getenv(name string) string {
	for _, line := range slices.Backward(p.Environ) { // the last one wins
		if value, found := strings.CutPrefix(line, name+"="); found {
			return value
		}
	}
	return ""
}

// Invocation is one run of gatewayctl: its process and the global flags.
type Invocation struct {
	Process
	JSON     bool   // --json
	Operator string // --operator
	Parsed   bool   // cobra has parsed the command line; later errors are the command's own
	// Committed: the command has committed a change in the database.
	Committed bool
}

// Print prints the result, as JSON if --json is set.
func (c *Invocation) Print(r output.Result) error { return output.Print(c.Stdout, r, c.JSON) }

// Progress returns the progress of a command, which --json hides.
func (c *Invocation) Progress() *output.Progress {
	return output.NewProgress(c.Stderr, c.Getenv("TERM") != "dumb", c.JSON)
}
