package rules

import (
	"errors"
	"fmt"
	"strings"
)

// Limits of SES. They apply to the encoded header, which is ASCII: one byte per character.
const (
	maxHeaderName  = 126
	maxHeaderValue = 995
	// MaxHeader is the maximum total length of name and value in characters.
	MaxHeader = 996
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

// checkUnreserved rejects headers that the gateway, the provider or a mail server sets.
// email_gateway_is_reserved in the database has the same list.
func checkUnreserved(name string) error {
	switch lower := strings.ToLower(name); {
	case strings.HasPrefix(lower, "list-unsubscribe"):
		return errors.New("is a reserved header, which the gateway sets on mailings: leave it out")
	case strings.HasPrefix(lower, "content-"), strings.HasPrefix(lower, "dkim-"), strings.HasPrefix(lower, "x-ses-"),
		strings.HasPrefix(lower, "resent-"), strings.HasPrefix(lower, "arc-"):
	default:
		switch lower {
		case "from", "to", "cc", "bcc", "subject":
			return errors.New("is a reserved header: use the field " + lower)
		case "reply-to":
			return errors.New("is a reserved header: use the field replyTo")
		case "date", "message-id", "mime-version", "return-path", "sender", "received",
			"authentication-results", "received-spf", "delivered-to":
		default:
			return nil
		}
	}
	return errors.New("is a reserved header, which the gateway, the provider or a server on the way sets: leave it out")
}
