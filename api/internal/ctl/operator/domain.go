package operator

import (
	"strings"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
)

// ParseDomain returns the domain as stored and compared: its IDNA ASCII form in lower
// case.
func ParseDomain(text string) (string, error) {
	domain, err := mailbox.Domain(strings.ToLower(text))
	if err != nil || email.CheckAddress("a@"+domain) != nil {
		return "", command.Usagef("%q is not a valid sender domain: give it as in acme.example", text)
	}
	return domain, nil
}
