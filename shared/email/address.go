package email

import (
	"errors"
	"strings"
	"unicode"
)

// Limits of RFC 5321, 4.5.3.1.
const (
	maxLocalPart = 64
	maxDomain    = 253 // 255 octets on the wire, including two length bytes
	maxAddress   = 254
)

var (
	ErrAddressSyntax  = errors.New("is not an email address")
	ErrAddressTooLong = errors.New("is longer than 254 characters (64 before the @, 253 after it)")
	ErrAddressASCII   = errors.New("must be ASCII before the @: the provider has no SMTPUTF8")
)

// CheckAddress reports whether mail can be sent to a bare address (no display name, domain in ASCII
// form). It accepts the dot-atom form of RFC 5321 with a domain of at least two labels; quoted
// local parts and address literals are valid there but rejected here, because providers reject them
// too.
func CheckAddress(address string) error {
	at := strings.LastIndexByte(address, '@')
	if at < 1 || at == len(address)-1 {
		return ErrAddressSyntax
	}
	local, domain := address[:at], address[at+1:]
	for i := range len(local) {
		if local[i] >= 0x80 {
			return ErrAddressASCII
		}
	}
	if !isDotAtom(local) || !isHostname(domain) {
		return ErrAddressSyntax
	}
	if len(local) > maxLocalPart || len(domain) > maxDomain || len(address) > maxAddress {
		return ErrAddressTooLong
	}
	return nil
}

// SameAddress compares two addresses case-insensitively, as SQL does with lower(). RFC 5321, 2.4 leaves the case of
// the local part to the receiving host, but no common host distinguishes it, and senders' systems change it.
func SameAddress(a, b string) bool { return strings.EqualFold(a, b) }

// NormalAddress returns the address with its domain in lower case. Ids and unsubscribe links are derived from this form,
// so it must not change. It does not tell whether two addresses are the same: see SameAddress.
func NormalAddress(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address
	}
	return address[:at] + strings.ToLower(address[at:])
}

// DomainOf returns the domain in lower case.
func DomainOf(address string) string {
	return strings.ToLower(address[strings.LastIndexByte(address, '@')+1:])
}

func isDotAtom(s string) bool {
	for atom := range strings.SplitSeq(s, ".") {
		if atom == "" || strings.ContainsFunc(atom, func(r rune) bool { return !isAtomRune(r) }) {
			return false
		}
	}
	return true
}

func isAtomRune(r rune) bool {
	return isLetterOrDigit(r) || strings.ContainsRune("!#$%&'*+-/=?^_`{|}~", r)
}

func isHostname(s string) bool {
	labels, top := 0, ""
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.ContainsFunc(label, func(r rune) bool { return !isLetterOrDigit(r) && r != '-' }) {
			return false
		}
		labels, top = labels+1, label
	}
	return labels >= 2 && strings.ContainsFunc(top, func(r rune) bool { return r < '0' || r > '9' })
}

func isLetterOrDigit(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// HasControl reports whether s has a character that could end a header line or be invisible in one:
// C0, DEL, C1, and the Unicode line ends U+2028 and U+2029. Text in UTF-8 that was read as Latin-1 has
// characters of C1. email_gateway_faults has the same set.
func HasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == 0x2028 || r == 0x2029 })
}

// HasLineBreak reports whether s has a control character of ASCII or one that ends a line. Workers check it in place of
// HasControl, which earlier releases did not have when they accepted some of the emails that workers send.
func HasLineBreak(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 })
}
