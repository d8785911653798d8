// Package query reads query strings, and makes the cursors of pages.
package query

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/fieldhint"
	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/rules"
)

const (
	defaultPage = 50
	largestPage = 100
)

const codeUnknown = "UNKNOWN_PARAMETER"

// malformed reports a query string that cannot be decoded.
func malformed(raw string) problem.Problem {
	detail := "the query string cannot be decoded"
	if strings.Contains(raw, ";") { // the standard library rejects it as a separator
		detail += ": write ; as %3B"
	}
	return problem.Problem{Status: http.StatusBadRequest, Code: "MALFORMED_QUERY", Detail: detail}
}

// Query parses a query string. Each method reads one parameter; Close reports all invalid and
// unknown parameters.
type Query struct {
	rules   *rules.Rules
	path    string
	values  url.Values
	changes bool     // the request changes something
	read    []string // the names read so far
	Faults  rules.Faults
}

// Open parses the query string of a request.
func Open(r *http.Request, checks *rules.Rules) (*Query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, malformed(r.URL.RawQuery)
	}
	return &Query{rules: checks, path: r.URL.Path, values: values, changes: r.Method != http.MethodGet}, nil
}

// Refuse refuses query parameters of POST and PATCH requests: ?dryRun=true must not be dropped from a request that sends emails.
func Refuse(c *gin.Context) error {
	if c.Request.Method != http.MethodPost && c.Request.Method != http.MethodPatch {
		return nil
	}
	values, err := url.ParseQuery(c.Request.URL.RawQuery)
	if err != nil {
		return malformed(c.Request.URL.RawQuery)
	}
	var faults rules.Faults
	for _, name := range slices.Sorted(maps.Keys(values))[:min(len(values), rules.MaxFaults)] {
		faults.Add(problem.PrintableName(name), codeUnknown, "is unknown: this request has no query parameters")
	}
	if len(faults) > 0 {
		return problem.Invalid(faults)
	}
	return nil
}

// Close reports all invalid and unknown parameters.
func (q *Query) Close() error {
	for name := range q.values {
		if len(q.Faults) >= rules.MaxFaults {
			break // a hint for a name takes some 20 µs, and a query has room for 10,000
		}
		if !slices.Contains(q.read, name) {
			q.Faults.Add(problem.PrintableName(name), codeUnknown, fieldhint.Request{Noun: "parameter", Known: q.read}.Unknown("", name))
		}
	}
	if len(q.Faults) > 0 {
		return problem.Invalid(q.Faults)
	}
	return nil
}

// Get returns the parameter's only value, "" if there is none. A blank one counts as missing in a search. Of a request that
// changes something it is refused: without its filter, DELETE would delete more than the client means.
func (q *Query) Get(name string) (string, bool) {
	q.read = append(q.read, name)
	values, given := q.values[name]
	switch {
	case !given:
		return "", false
	case len(values) > 1:
		q.Faults.Add(name, "DUPLICATE_PARAMETER", "appears twice")
		return "", false
	case email.IsBlank(values[0]):
		if q.changes {
			q.Faults.Add(name, rules.CodeRequired, rules.LeaveOut)
		}
		return "", false
	case !utf8.ValidString(values[0]):
		q.Faults.Add(name, rules.CodeBadCharacter, "must be UTF-8")
		return "", false
	case strings.Contains(values[0], "\x00"): // Postgres cannot store it
		q.Faults.Add(name, rules.CodeBadCharacter, "contains the character U+0000")
		return "", false
	}
	return values[0], true
}

// Text reads a parameter that satisfies the rule; "" if there is none.
func (q *Query) Text(name, rule string) string {
	value, given := q.Get(name)
	if !given {
		return ""
	}
	if code, message := q.rules.CheckOne(value, rule); code != "" {
		q.Faults.Add(name, code, message)
		return ""
	}
	return value
}

// Require requires a parameter, before it is read.
func (q *Query) Require(name string) {
	if email.IsBlank(q.values.Get(name)) {
		q.Faults.Add(name, rules.CodeRequired, "is required")
	}
}

// Needs requires other if name is given.
func (q *Query) Needs(name, other string) {
	if !email.IsBlank(q.values.Get(name)) && email.IsBlank(q.values.Get(other)) {
		q.Faults.Add(other, rules.CodeRequired, "is required with "+name)
	}
}

// Address reads an address in stored form.
func (q *Query) Address(name string) string {
	value, _ := q.Get(name)
	if value == "" {
		return ""
	}
	if code, message := q.rules.CheckOne(value, "address"); code != "" {
		q.Faults.Add(name, code, plusHint(value, message))
		return ""
	}
	if ascii, err := mailbox.ASCII(value); err == nil {
		return ascii
	}
	return value
}

// Limit reads the size of a page.
func (q *Query) Limit(name string) int { return q.Number(name, defaultPage, 1, largestPage) }

// Number reads a number from least to most.
func (q *Query) Number(name string, missing, least, limit int) int {
	value, given := q.Get(name)
	if !given {
		return missing
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > limit {
		q.Faults.Add(name, "OUT_OF_RANGE", fmt.Sprintf("must be a number from %d to %d", least, limit))
	}
	return n
}

// Bound returns the smallest UUIDv7 of the first whole millisecond at or after a time: UUIDv7
// ids sort by creation time, so a range of time is a range of ids.
func (q *Query) Bound(name string) uuid.UUID {
	t, given := q.time(name)
	if !given {
		return uuid.Nil
	}
	ms := t.Add(time.Millisecond - 1).UnixMilli()
	if ms < 1 || ms >= 1<<48 {
		q.Faults.Add(name, "OUT_OF_RANGE", ReasonableTimes)
		return uuid.Nil
	}
	var id uuid.UUID
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// Moment reads a time to compare a column with.
func (q *Query) Moment(name string) *time.Time {
	t, given := q.time(name)
	if !given {
		return nil
	}
	if !WithinReason(t) {
		q.Faults.Add(name, "OUT_OF_RANGE", ReasonableTimes)
	}
	return &t
}

// time reads a time; given is false also if it is not valid.
func (q *Query) time(name string) (t time.Time, given bool) {
	value, given := q.Get(name)
	if !given {
		return time.Time{}, false
	}
	t, err := rules.ParseTime(value)
	if err != nil {
		q.Faults.Add(name, "INVALID_TIMESTAMP", plusHint(value, err.Error()))
	}
	return t, err == nil
}

// plusHint completes the fault of a value with a space, which may have been a + that was not escaped.
func plusHint(value, message string) string {
	if strings.Contains(value, " ") {
		message += "; write + as %2B in a query"
	}
	return message
}

// ReasonableTimes is the fault of a time outside of WithinReason.
const ReasonableTimes = "must be between 1970 and 9999"

// WithinReason reports whether the year is within ReasonableTimes.
func WithinReason(t time.Time) bool { return t.UTC().Year() >= 1970 && t.UTC().Year() <= 9999 }
