package rules

import (
	"errors"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"email-gateway/shared/email"
)

func checkLine(value string) error {
	if email.HasControl(value) {
		return errors.New("must not hold control characters or line ends")
	}
	return nil
}

func checkPrintable(value string) error {
	if strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return errors.New("must hold printable characters only")
	}
	return nil
}

func checkTaxIDHash(value string) error {
	if !email.IsSHA256(value) {
		return errors.New("must be a SHA-256 in 64 lower-case hex digits")
	}
	return nil
}

// ParseID reads a UUID in its one usual form; uuid.Parse knows others.
func ParseID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, errors.New("must be a UUID")
	}
	return id, nil
}

// ParseTime reads RFC 3339, which always has a zone.
func ParseTime(value string) (time.Time, error) {
	var t time.Time
	if err := t.UnmarshalText([]byte(value)); err != nil {
		return time.Time{}, errors.New("must be a time with its zone, such as 2026-03-01T09:00:00-03:00")
	}
	return t, nil
}
