package rules

import (
	"errors"
	"fmt"
	"strings"
)

// maxHeaderName and maxHeaderValue leave room for both in SES's 996 per header.
const (
	maxHeaderName  = 126
	maxHeaderValue = 900
)

func checkHeaderName(name string) error {
	if name == "" || len(name) > maxHeaderName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }) {
		return fmt.Errorf("must have a name of 1 to %d printable ASCII characters without space and colon", maxHeaderName)
	}
	return nil
}

func checkHeaderValue(value string) error {
	printable := !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
	if strings.TrimSpace(value) == "" || len(value) > maxHeaderValue || !printable {
		return fmt.Errorf("must have a value of 1 to %d printable ASCII characters", maxHeaderValue)
	}
	return nil
}

// checkUnreserved keeps a tenant from setting what the gateway or the provider sets.
func checkUnreserved(name string) error {
	switch lower := strings.ToLower(name); {
	case strings.HasPrefix(lower, "content-"), strings.HasPrefix(lower, "dkim-"), strings.HasPrefix(lower, "x-ses-"),
		strings.HasPrefix(lower, "list-unsubscribe"):
	default:
		switch lower {
		case "from", "to", "cc", "bcc", "subject", "reply-to", "date", "message-id", "mime-version", "return-path", "sender", "received":
		default:
			return nil
		}
	}
	return errors.New("is set by the gateway or the provider")
}
