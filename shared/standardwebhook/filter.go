package standardwebhook

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

var entryPattern = regexp.MustCompile(`^(?:[a-z][a-z0-9_]*\.)*(?:\*|[a-z][a-z0-9_]*\*?)$`)

// ErrType is the fault of a filter's entry. Its text continues after the field's name.
var ErrType = errors.New("must be an event type such as email.bounced, or the beginning of types and * such as email.*")

// CheckType checks one entry of a filter: an event type, or a prefix that ends in "*". known are
// the existing types: an entry that matches none of them is a mistake.
func CheckType(entry string, known []string) error {
	if !entryPattern.MatchString(entry) || len(entry) > 64 || entry == "*" {
		return ErrType
	}
	if !slices.ContainsFunc(known, func(t string) bool { return matches(entry, t) }) {
		return errors.New("matches no event type: the types are " + strings.Join(known, ", "))
	}
	return nil
}

func matches(entry, eventType string) bool {
	if prefix, found := strings.CutSuffix(entry, "*"); found {
		return strings.HasPrefix(eventType, prefix)
	}
	return entry == eventType
}
