package event

import (
	"strings"

	"email-gateway/shared/email"
)

// Filter selects events by type. nil selects all, also those of types that this release does not know.
type Filter struct{ ofEmails, ofCompany []string } // patterns of LIKE; not nil

// NewFilter returns a filter that selects nothing.
func NewFilter() *Filter { return &Filter{ofEmails: []string{}, ofCompany: []string{}} }

// OfTypes returns the filter of exactly these types; nil means all.
func OfTypes(types []email.EventType) *Filter {
	if types == nil {
		return nil
	}
	f := NewFilter()
	for _, t := range types {
		f.AddOfEmails(string(t))
		f.AddOfCompany(string(t))
	}
	return f
}

// AddOfEmails adds a type of events of emails, or the beginning of types and "*".
func (f *Filter) AddOfEmails(t string) { f.ofEmails = append(f.ofEmails, pattern(t)) }

// AddOfCompany is AddOfEmails for events of the company.
func (f *Filter) AddOfCompany(t string) { f.ofCompany = append(f.ofCompany, pattern(t)) }

// pattern returns the pattern of LIKE for a type or a prefix.
func pattern(t string) string {
	prefix, isPrefix := strings.CutSuffix(t, "*")
	escaped := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(prefix)
	if isPrefix {
		escaped += "%"
	}
	return escaped
}
