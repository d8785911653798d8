package httpapi

import (
	"errors"
	"net/mail"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/net/idna"

	"email-gateway/shared/email"
)

// asciiAddress is a bare address as it is stored and sent: with its domain in ASCII.
func asciiAddress(address string) (string, error) {
	at := strings.LastIndexByte(address, '@')
	if at < 1 {
		return "", email.ErrAddressSyntax
	}
	local, domain := address[:at], address[at+1:]
	if needsIDNA(domain) {
		ascii, err := idna.Lookup.ToASCII(domain)
		if err != nil {
			return "", errors.New("has a domain that is not a valid international name")
		}
		address = local + "@" + ascii
	}
	if err := email.CheckAddress(address); err != nil {
		return "", err
	}
	return address, nil
}

// needsIDNA: a letter beyond ASCII, or a label that claims to stand for some.
func needsIDNA(domain string) bool {
	for i := range len(domain) {
		if domain[i] >= 0x80 {
			return true
		}
	}
	return strings.Contains(strings.ToLower(domain), "xn--")
}

var errMailbox = errors.New(`must be an address or a name with one: "Acme <billing@acme.example>"`)

// maxDisplayName is that of the other names in a request.
const maxDisplayName = email.MaxFieldLen

// parseMailbox reads one RFC 5322 mailbox; its address is in stored form. The name
// may come encoded (RFC 2047), so it is looked at after decoding, too.
func parseMailbox(text string) (mail.Address, error) {
	if err := checkLine(text); err != nil {
		return mail.Address{}, err
	}
	parsed, err := mail.ParseAddress(text)
	if err != nil || strings.HasSuffix(strings.TrimSpace(text), ";") { // a group
		return mail.Address{}, errMailbox
	}
	if err := checkLine(parsed.Name); err != nil {
		return mail.Address{}, err
	}
	if len([]rune(parsed.Name)) > maxDisplayName {
		return mail.Address{}, errors.New("has a name longer than 200 characters")
	}
	address, err := asciiAddress(parsed.Address)
	return mail.Address{Name: parsed.Name, Address: address}, err
}

// writeMailbox is the mailbox as a header holds it: a name beyond ASCII is encoded.
func writeMailbox(m mail.Address) string {
	if m.Name == "" {
		return m.Address
	}
	return m.String()
}

// parseID reads a UUID in its one usual form; uuid.Parse knows others.
func parseID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, errors.New("must be a UUID")
	}
	return id, nil
}

func checkID(text string) error {
	_, err := parseID(text)
	return err
}
