package ctl

import (
	"strings"

	"github.com/spf13/cobra"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// Functions that are tested directly.
var (
	Explain   = explain
	Moment    = moment
	ShellWord = shellWord
	Span      = span
	Table     = table
)

// Commands lists all runnable commands as typed after gatewayctl, without those that cobra
// adds.
func Commands() []string {
	var all []string
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			walk(child)
		}
		if !cmd.HasSubCommands() {
			all = append(all, strings.TrimPrefix(cmd.CommandPath(), "gatewayctl "))
		}
	}
	walk((&control{}).root())
	return all
}

// Text returns the text output.
func (x explanation) Text() string {
	var page strings.Builder
	x.text(&page)
	return page.String()
}

// ShowEmail returns the output of email show.
func ShowEmail(s store.EmailDiagnosis, events []store.TimelineEvent, reveal bool) (string, error) {
	view, err := viewEmail(s, events, email.MaxAttempts, reveal)
	if err != nil {
		return "", err
	}
	var page strings.Builder
	view.text(&page)
	return page.String(), nil
}

// ErasureFailure returns the error of an erasure that is complete except for tasks in Redis.
func ErasureFailure(openTasks int) error {
	v := erased{}
	v.Receipt.Tasks.Open = openTasks
	return v.failure()
}
