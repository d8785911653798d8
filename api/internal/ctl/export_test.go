package ctl

import (
	"strings"

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

// Text is the answer for people.
func (x explanation) Text() string {
	var page strings.Builder
	x.text(&page)
	return page.String()
}

// ShowEmail is what email show prints.
func ShowEmail(s store.Situation, events []store.TimelineEvent, reveal bool) (string, error) {
	view, err := viewEmail(s, events, reveal)
	if err != nil {
		return "", err
	}
	var page strings.Builder
	view.text(&page)
	return page.String(), nil
}
