package ctl

import (
	"strings"

	"github.com/spf13/cobra"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// What is small enough to be tested by itself.
var (
	Explain   = explain
	Moment    = moment
	ShellWord = shellWord
	Span      = span
	Table     = table
)

// Commands are all that do something, as they are typed behind gatewayctl, without those
// that cobra brings.
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

// Text is the answer for people.
func (x explanation) Text() string {
	var page strings.Builder
	x.text(&page)
	return page.String()
}

// ShowEmail is what email show prints.
func ShowEmail(s store.Situation, events []store.TimelineEvent, reveal bool) (string, error) {
	view, err := viewEmail(s, events, email.MaxAttempts, reveal)
	if err != nil {
		return "", err
	}
	var page strings.Builder
	view.text(&page)
	return page.String(), nil
}

// ErasureFailure is what an erasure that is complete but for some tasks in Redis ends with.
func ErasureFailure(openTasks int) error {
	v := erased{}
	v.Receipt.Tasks.Open = openTasks
	return v.failure()
}
