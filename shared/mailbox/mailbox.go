// Package mailbox parses addresses as people write them and converts them to the form in which they
// are stored and sent. Package httpapi uses it for the fields of a request, package mailing for the
// rows of a CSV file.
package mailbox

import (
	"errors"
	"fmt"
	"mime"
	"net/mail"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"email-gateway/shared/email"
)

// maxLabel is the maximum number of characters of a label before its conversion. In ASCII it has at most 63, and as many letters
// before, each of which may be written with an accent of its own. The time of the conversion grows with the square of the number:
// 2.6 ms at 480.
const maxLabel = 2 * 63

// maxWritten is the maximum length, in bytes, of an address that is converted to ASCII. The time of
// the conversion grows with the square of the length. The longest valid address has 254 characters
// in ASCII, and about 1,000 bytes before: a label of 63 characters encodes at most 58 letters, of
// up to 4 bytes each.
const maxWritten = 1024

// ASCII returns a bare address in the form in which it is stored and sent: with its domain in
// ASCII.
func ASCII(address string) (string, error) {
	if len(address) > maxWritten {
		return "", email.ErrAddressTooLong
	}
	at := strings.LastIndexByte(address, '@')
	if at < 1 {
		return "", email.ErrAddressSyntax
	}
	local, written := address[:at], address[at+1:]
	domain, err := Domain(written)
	if err != nil {
		return "", err
	}
	if domain != written { // avoids a copy for each row of a CSV
		address = local + "@" + domain
	}
	if err := email.CheckAddress(address); err != nil {
		return "", err
	}
	return address, nil
}

// Domain returns a domain in ASCII. One that is ASCII already is unchanged: IDNA's rules for
// hyphens do not apply to it.
func Domain(domain string) (string, error) {
	if !needsIDNA(domain) {
		return domain, nil
	}
	if len(domain) > maxWritten {
		return "", email.ErrAddressTooLong
	}
	for label := range strings.FieldsFuncSeq(domain, isDot) {
		if utf8.RuneCountInString(label) > maxLabel {
			return "", errDomain
		}
	}
	ascii, err := idna.Lookup.ToASCII(domain)
	if err != nil {
		return "", errDomain
	}
	return ascii, nil
}

// isDot reports the characters that separate labels in IDNA (RFC 3490, section 3.1).
func isDot(r rune) bool { return r == '.' || r == '\u3002' || r == '\uff0e' || r == '\uff61' }

// needsIDNA reports whether a domain has a non-ASCII letter or a punycode label.
func needsIDNA(domain string) bool {
	for i := range len(domain) {
		if domain[i] >= 0x80 {
			return true
		}
	}
	return strings.Contains(strings.ToLower(domain), "xn--")
}

var (
	errDomain  = errors.New("has a domain that is not a valid international name")
	errMailbox = errors.New(`must be an address, or a name and an address: "Acme <billing@acme.example>"`)
	errLine    = errors.New("must not contain control characters or line ends")
)

// maxDisplayName is the same as for other names in a request.
const maxDisplayName = email.MaxFieldLen

// Parse parses one RFC 5322 mailbox; its address is in stored form. The name may be encoded (RFC
// 2047), so it is checked after decoding, too.
func Parse(text string) (mail.Address, error) {
	if email.HasControl(text) {
		return mail.Address{}, errLine
	}
	parsed, err := mail.ParseAddress(text)
	if err != nil || strings.HasSuffix(strings.TrimSpace(text), ";") { // a group
		return mail.Address{}, errMailbox
	}
	if email.HasControl(parsed.Name) {
		return mail.Address{}, errLine
	}
	if len([]rune(parsed.Name)) > maxDisplayName {
		return mail.Address{}, errors.New("has a name longer than 200 characters")
	}
	address, err := ASCII(parsed.Address)
	return mail.Address{Name: parsed.Name, Address: address}, err
}

// maxHeader is SES's limit of a header, 996 characters, without the name From.
const maxHeader = 992

// Header formats the mailbox for the header From: a non-ASCII name is encoded. Its error is that of a header that is too long.
//
// It always uses base64. mail.Address.String leaves a backslash as it is in its encoding for mostly ASCII names, and
// mail.ParseAddress refuses that.
func Header(m mail.Address) (string, error) {
	header := m.Address
	if encoded := mime.BEncoding.Encode("utf-8", m.Name); encoded != m.Name {
		header = encoded + " <" + m.Address + ">"
	} else if m.Name != "" {
		header = m.String()
	}
	if len(header) > maxHeader {
		return "", fmt.Errorf("must have at most %d characters in its header, where a non-ASCII name is encoded", maxHeader)
	}
	return header, nil
}
