package rules

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"email-gateway/shared/email"
)

func checkLine(value string) error {
	if email.HasControl(value) {
		return errors.New("must not contain control characters or line ends")
	}
	return nil
}

func checkPrintable(value string) error {
	if strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return errors.New("must contain only printable characters")
	}
	return nil
}

// namePattern allows the characters that need no escaping in a path, except @, so that an address is not a valid name.
// The first character excludes "." and "..", which clients resolve. CHECKs on outbox_aggregates use the same pattern.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:=~-]*$`)

func checkName(value string) error {
	if !namePattern.MatchString(value) {
		return errors.New("must begin with a letter or digit and contain only letters, digits and . _ : = ~ -")
	}
	return nil
}

// CheckRequestID validates the id that a sender gives a request: 1 to 128 printable ASCII characters without spaces and
// @. Every log line contains the id, and logs must not contain addresses.
func CheckRequestID(id string) error {
	if len(id) < 1 || len(id) > 128 || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == '@' }) {
		return errors.New("must have 1 to 128 printable ASCII characters without space and @")
	}
	return nil
}

func checkTaxIDHash(value string) error {
	if !email.IsSHA256(value) {
		return errors.New("must be the SHA-256 of the bare number in 64 lower-case hex digits")
	}
	return nil
}

// ParseID parses a UUID in its usual form of 36 characters. uuid.Parse also accepts other forms.
func ParseID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, errors.New("must be a UUID, such as 0199d0a8-5f6e-7c3a-9b1e-2f4a6c8e0d12")
	}
	return id, nil
}

// ParseTime parses a time in RFC 3339, which always has a time zone and allows t and z for T and Z. Leap seconds are an
// error: neither Go nor Postgres has them.
func ParseTime(value string) (time.Time, error) {
	var t time.Time
	upper := []byte(strings.ToUpper(value))
	if t.UnmarshalText(upper) == nil {
		return t, nil
	}
	const second = len("2026-03-01T09:00:")
	if len(upper) > second && bytes.HasPrefix(upper[second:], []byte("60")) {
		copy(upper[second:], "59")
		if t.UnmarshalText(upper) == nil {
			return time.Time{}, errors.New("must have no leap second (:60): write :59, or :00 of the next minute")
		}
	}
	return time.Time{}, errors.New("must be a time with its zone, such as 2026-03-01T09:00:00-03:00")
}
