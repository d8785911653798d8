package mailbox

import (
	"errors"
	"strings"

	"email-gateway/shared/email"
)

// Common mistakes in place of a bare address. A caller that has a field for the name, or for other
// addresses, compares with errors.Is and names it.
var (
	ErrNamed   = errors.New("must be a bare address such as ana@example.com, without a name and angle brackets")
	ErrSeveral = errors.New("must be one address, not several")
)

// Diagnose returns why ASCII rejects an address, so that a person can correct it. It returns nil
// for a valid address, and never quotes it.
func Diagnose(address string) error {
	_, err := ASCII(address)
	if err == nil {
		return nil
	}
	if shape := diagnoseShape(address); shape != nil {
		return shape
	}
	if !errors.Is(err, email.ErrAddressSyntax) {
		return err
	}
	at := strings.LastIndexByte(address, '@')
	if reason := diagnoseLocal(address[:at]); reason != nil {
		return reason
	}
	return diagnoseDomain(address[at+1:])
}

// diagnoseShape detects values that are not one bare address.
func diagnoseShape(address string) error {
	at := strings.Count(address, "@")
	switch {
	case email.HasControl(address):
		return errLine
	case at > 1 && strings.ContainsAny(address, ",;"):
		return ErrSeveral
	case strings.ContainsAny(address, "<>"):
		return ErrNamed
	case len(address) >= 7 && strings.EqualFold(address[:7], "mailto:"):
		return errors.New("must be the address without its \"mailto:\" prefix")
	case at == 0:
		return errors.New("is not an email address: it has no @")
	case strings.TrimSpace(address) != address:
		return errors.New("must not begin or end with a space")
	case address[0] == '"':
		return errors.New("must not have quotes before the @: providers reject them")
	case at > 1:
		return errors.New("is not an email address: it has more than one @")
	case strings.ContainsAny(address, " \u00a0"):
		return errors.New("must not contain spaces")
	case address[0] == '@', address[len(address)-1] == '@':
		return errors.New("is not an email address: the part before or after the @ is missing")
	}
	return nil
}

func diagnoseLocal(local string) error {
	switch {
	case strings.HasPrefix(local, "."), strings.HasSuffix(local, "."), strings.Contains(local, ".."):
		return errors.New("must not have a dot at the beginning or end of the part before the @, or two dots in a row")
	case strings.ContainsAny(local, `()[]:;,\"`):
		return errors.New(`must not have any of ( ) [ ] : ; , \ " before the @`)
	}
	return nil
}

func diagnoseDomain(domain string) error {
	switch {
	case strings.HasPrefix(domain, "["):
		return errors.New("must have a domain name after the @, not an IP address")
	case !strings.Contains(domain, "."):
		return errors.New("must have the complete domain after the @, as in ana@example.com: this one has no dot")
	}
	return errors.New("must have a domain of letters, digits, hyphens and single dots after the @, as in ana@example.com")
}
