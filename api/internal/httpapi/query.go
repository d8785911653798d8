package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"email-gateway/api/internal/fieldhint"
	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/rules"
)

const (
	defaultPage = 50
	largestPage = 100
)

// query parses a query string. Each method reads one parameter; close reports all invalid and
// unknown parameters.
type query struct {
	rules  *rules.Rules
	values url.Values
	read   []string // the names read so far
	faults rules.Faults
}

func openQuery(raw string, checks *rules.Rules) (*query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, problem{status: http.StatusBadRequest, code: "MALFORMED_QUERY", detail: "the query string cannot be decoded"}
	}
	return &query{rules: checks, values: values}, nil
}

func (q *query) close() error {
	for name := range q.values {
		if !slices.Contains(q.read, name) {
			q.faults.Add(printableName(name), "UNKNOWN_PARAMETER", fieldhint.Request{Noun: "parameter", Known: q.read}.Unknown("", name))
		}
	}
	if len(q.faults) > 0 {
		return invalid(q.faults)
	}
	return nil
}

// get returns the parameter's only value, "" if there is none. A blank one counts as missing,
// like a blank field.
func (q *query) get(name string) (string, bool) {
	q.read = append(q.read, name)
	values, given := q.values[name]
	switch {
	case !given:
		return "", false
	case len(values) > 1:
		q.faults.Add(name, "DUPLICATE_PARAMETER", "appears twice")
		return "", false
	case email.IsBlank(values[0]):
		return "", false
	case !utf8.ValidString(values[0]):
		q.faults.Add(name, "BAD_CHARACTER", "must be UTF-8")
		return "", false
	}
	return values[0], true
}

func (q *query) text(name, rule string) string {
	value, given := q.get(name)
	if !given {
		return ""
	}
	if code, message := q.rules.CheckOne(value, rule); code != "" {
		q.faults.Add(name, code, message)
		return ""
	}
	return value
}

// needs requires other if name is given.
func (q *query) needs(name, other string) {
	if !email.IsBlank(q.values.Get(name)) && email.IsBlank(q.values.Get(other)) {
		q.faults.Add(other, rules.CodeRequired, "is required with "+name)
	}
}

// address reads an address in stored form.
func (q *query) address(name string) string {
	value := q.text(name, "address")
	if ascii, err := mailbox.ASCII(value); err == nil {
		return ascii
	}
	return value
}

func (q *query) limit(name string) int { return q.number(name, defaultPage, 1, largestPage) }

// number reads a number from least to most.
func (q *query) number(name string, missing, least, most int) int {
	value, given := q.get(name)
	if !given {
		return missing
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		q.faults.Add(name, "OUT_OF_RANGE", fmt.Sprintf("must be a number from %d to %d", least, most))
	}
	return n
}

func (q *query) cursor(name string) uuid.UUID {
	value, given := q.get(name)
	if !given {
		return uuid.Nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(value)
	id, errID := uuid.FromBytes(raw)
	if err != nil || errID != nil {
		q.faults.Add(name, "INVALID_CURSOR", "must be the nextCursor of a page")
	}
	return id
}

// bound returns the smallest UUIDv7 of the first whole millisecond at or after a time: UUIDv7
// ids sort by creation time, so a range of time is a range of ids.
func (q *query) bound(name string) uuid.UUID {
	value, given := q.get(name)
	if !given {
		return uuid.Nil
	}
	t, err := rules.ParseTime(value)
	if err != nil {
		q.faults.Add(name, "INVALID_TIMESTAMP", err.Error())
		return uuid.Nil
	}
	ms := t.Add(time.Millisecond - 1).UnixMilli()
	if ms < 1 || ms >= 1<<48 {
		q.faults.Add(name, "OUT_OF_RANGE", reasonableTimes)
		return uuid.Nil
	}
	var id uuid.UUID
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// moment reads a time to compare a column with.
func (q *query) moment(name string) *time.Time {
	value, given := q.get(name)
	if !given {
		return nil
	}
	t, err := rules.ParseTime(value)
	switch {
	case err != nil:
		q.faults.Add(name, "INVALID_TIMESTAMP", err.Error())
	case !withinReason(t):
		q.faults.Add(name, "OUT_OF_RANGE", reasonableTimes)
	}
	return &t
}

const reasonableTimes = "must be between 1970 and 9999"

// withinReason reports whether the year is within reasonableTimes.
func withinReason(t time.Time) bool { return t.UTC().Year() >= 1970 && t.UTC().Year() <= 9999 }

// cursorTo is the cursor of the page that begins after id.
func cursorTo(id uuid.UUID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// encodeCursor encodes the cursor of a list that is not sorted by id.
func encodeCursor(last any) (string, error) {
	text, err := json.Marshal(last)
	if err != nil {
		return "", fmt.Errorf("encode cursor: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(text), nil
}

// decodeCursor undoes that; nil is an invalid cursor.
func decodeCursor(text string) []byte {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return raw
}

// printableName truncates a name chosen by the client.
func printableName(name string) string {
	const longest = 128
	if len(name) > longest {
		name = name[:longest]
	}
	return name
}
