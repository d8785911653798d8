package httpapi

import (
	"errors"
	"strings"

	"email-gateway/api/internal/csvfile"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
)

// newRules returns the rules of request fields, including those that only HTTP has.
func newRules() (*rules.Rules, error) {
	return rules.New(map[string]rules.Rule{
		"encoding":  {Code: rules.CodeNotAllowed, Check: func(v string) error { _, err := csvfile.ParseEncoding(v); return err }},
		"delimiter": {Code: rules.CodeNotAllowed, Check: func(v string) error { _, err := csvfile.ParseDelimiter(v); return err }},
		"status":    {Code: rules.CodeNotAllowed, Check: checkStatus},
	})
}

func checkStatus(value string) error {
	var names []string
	for _, s := range email.Statuses() {
		if value == string(s) {
			return nil
		}
		names = append(names, string(s))
	}
	return errors.New("must be one of: " + strings.Join(names, ", "))
}
