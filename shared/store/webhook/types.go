package webhook

import (
	"fmt"
	"slices"
	"strings"

	"email-gateway/shared/email"
	"email-gateway/shared/store/event"
)

// Types lists the event types of a company's feed, sorted.
func Types() []string {
	var all []string
	for _, t := range event.Types() {
		all = append(all, TypeOf(t))
	}
	slices.Sort(all)
	return all
}

const emailPrefix, companyPrefix = "email.", "company."

// TypeOf returns the public name of an event type: email.delivery_delayed for DELIVERY_DELAYED, and
// company.mailings_paused for MAILINGS_PAUSED.
func TypeOf(t email.EventType) string {
	return publicType(t, slices.Contains(event.CompanyTypes(), t))
}

// publicType is TypeOf for a type that this release may not know.
func publicType(t email.EventType, ofCompany bool) string {
	if ofCompany {
		return companyPrefix + strings.ToLower(string(t))
	}
	return emailPrefix + strings.ToLower(string(t))
}

// IsOfEmail reports whether a public type is that of an email's event.
func IsOfEmail(public string) bool { return strings.HasPrefix(public, emailPrefix) }

// orZero returns the value that p points to; nil = the zero value.
func orZero[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// oneRow returns pg.ErrNotFound if a statement affected no row.
func oneRow(what string, n int64, err error) error {
	if err == nil && n == 0 {
		err = errNotFound
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
