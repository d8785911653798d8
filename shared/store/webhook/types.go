package webhook

import (
	"fmt"
	"strings"

	"email-gateway/shared/email"
)

// Types lists the event types of a company's feed, sorted.
func Types() []string {
	var all []string
	for _, t := range email.EventTypes() {
		all = append(all, TypeOf(t))
	}
	return all
}

const emailPrefix = "email."

// TypeOf is the public name of an email's event type: email.delivery_delayed for DELIVERY_DELAYED.
func TypeOf(t email.EventType) string { return emailPrefix + strings.ToLower(string(t)) }

func number(n *int) int64 {
	if n == nil {
		return 0
	}
	return int64(*n)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// oneRow returns ErrNotFound for a statement without a row.
func oneRow(what string, n int64, err error) error {
	if err == nil && n == 0 {
		err = errNotFound
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
