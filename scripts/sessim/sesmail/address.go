package sesmail

import (
	"net/mail"
	"strings"
)

// The maximum lengths of the two parts of an address by RFC 5321.
const (
	maxLocalPart = 64
	maxDomain    = 255
)

// invalidAddress returns SES's message for an address that it refuses. SES has no SMTPUTF8: local
// parts are ASCII, domains punycode, display names encoded words.
func invalidAddress(address string) string {
	if strings.ContainsFunc(address, isControl) {
		return "Local address contains control or whitespace"
	}
	bare := address
	if strings.ContainsAny(address, `<" `) {
		if before, _, found := strings.Cut(address, "<"); found && !isASCII(before) {
			return "Illegal address: non-ASCII characters in a display name must be RFC 2047 encoded words"
		}
		parsed, err := mail.ParseAddress(address)
		if err != nil {
			return "Illegal address"
		}
		bare = parsed.Address
	}
	at := strings.LastIndexByte(bare, '@')
	if at < 0 {
		return "Missing final '@domain'"
	}
	local, domain := bare[:at], bare[at+1:]
	switch {
	case local == "" || len(local) > maxLocalPart:
		return "Illegal address"
	case !isASCII(local):
		return "Local address contains non-ASCII characters"
	case domain == "":
		return "Missing final '@domain'"
	case strings.HasPrefix(domain, "."):
		return "Domain starts with dot"
	case strings.HasSuffix(domain, "."), strings.Contains(domain, ".."), len(domain) > maxDomain:
		return "Illegal address"
	case strings.ContainsFunc(domain, notDomain):
		return "Domain contains illegal character"
	case len(bare) == len(address) && strings.ContainsFunc(local, notDotAtom):
		return "Illegal address"
	}
	return ""
}

func isControl(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029'
}

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

func notDomain(r rune) bool { return !isAlphanumeric(r) && r != '-' && r != '.' }

// notDotAtom finds what RFC 5321 does not allow in an unquoted local part.
func notDotAtom(r rune) bool {
	return !isAlphanumeric(r) && !strings.ContainsRune(".!#$%&'*+-/=?^_`{|}~", r)
}

// matchesAddress reports whether want, an address or "@domain", matches the recipient.
func matchesAddress(recipient, want string) bool {
	recipient = BareAddress(recipient)
	if strings.HasPrefix(want, "@") && len(recipient) > len(want) {
		recipient = recipient[len(recipient)-len(want):]
	}
	return strings.EqualFold(recipient, want)
}

// BareAddress removes the display name from a valid address.
func BareAddress(address string) string {
	if !strings.HasSuffix(address, ">") {
		return address
	}
	return address[strings.LastIndexByte(address, '<')+1 : len(address)-1]
}
