package httpapi

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// emailPage is the answer of GET /v1/emails. A page may be short, or empty, and still
// have a NextCursor: the end is where there is none.
type emailPage struct {
	Emails     []emailSummary `json:"emails"`
	NextCursor string         `json:"nextCursor,omitempty"`
}

const (
	defaultPage = 50
	largestPage = 100
)

func (a *API) listEmails(c *gin.Context) error {
	filter, err := readFilter(c.Request.URL.RawQuery, a.rules)
	if err != nil {
		return err
	}
	page, err := a.store.ListEmails(c.Request.Context(), visitOf(c).caller.CompanyID, filter)
	if err != nil {
		return err
	}
	answer := emailPage{Emails: make([]emailSummary, len(page.Emails))}
	for i, e := range page.Emails {
		answer.Emails[i] = summaryOf(e)
	}
	if page.Next != uuid.Nil {
		answer.NextCursor = base64.RawURLEncoding.EncodeToString(page.Next[:])
	}
	c.JSON(http.StatusOK, answer)
	return nil
}

// query is a query string on its way to a filter.
type query struct {
	rules  *rules
	values url.Values
	read   []string // the names asked for so far
	faults faults
}

// readFilter reads the query string; every bad or unknown parameter is named.
func readFilter(raw string, rules *rules) (store.EmailFilter, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return store.EmailFilter{}, problem{status: http.StatusBadRequest, code: "MALFORMED_QUERY", detail: "the query string cannot be decoded"}
	}
	q := query{rules: rules, values: values}
	filter := store.EmailFilter{
		Before:     q.cursor("cursor"),
		From:       q.bound("createdAfter"),
		Until:      q.bound("createdBefore"),
		Status:     email.Status(q.text("status", "status")),
		Tag:        q.text("tag", "max=64,printable"),
		Recipient:  q.text("recipient", "address"),
		ExternalID: q.text("externalId", "max=200,line"),
		RequestID:  q.text("requestId", "max=128,printable"),
		Limit:      q.limit("limit"),
	}
	if ascii, err := asciiAddress(filter.Recipient); err == nil {
		filter.Recipient = ascii
	}
	for name := range values {
		if !slices.Contains(q.read, name) {
			q.faults.add(printableName(name), "UNKNOWN_PARAMETER", "is not a parameter of this request")
		}
	}
	if len(q.faults) > 0 {
		return store.EmailFilter{}, invalid(q.faults)
	}
	return filter, nil
}

// get is the parameter's one value, "" if there is none.
func (q *query) get(name string) (string, bool) {
	q.read = append(q.read, name)
	values, given := q.values[name]
	switch {
	case !given:
		return "", false
	case len(values) > 1:
		q.faults.add(name, "DUPLICATE_PARAMETER", "stands here twice")
		return "", false
	case values[0] == "":
		q.faults.add(name, "REQUIRED", "must not be empty")
		return "", false
	case !utf8.ValidString(values[0]):
		q.faults.add(name, "BAD_CHARACTER", "must be UTF-8")
		return "", false
	}
	return values[0], true
}

func (q *query) text(name, rule string) string {
	value, given := q.get(name)
	if !given {
		return ""
	}
	if code, message := q.rules.checkOne(value, rule); code != "" {
		q.faults.add(name, code, message)
		return ""
	}
	return value
}

func (q *query) limit(name string) int {
	value, given := q.get(name)
	if !given {
		return defaultPage
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > largestPage {
		q.faults.add(name, "OUT_OF_RANGE", "must be a number from 1 to "+strconv.Itoa(largestPage))
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
		q.faults.add(name, "INVALID_CURSOR", "must be the nextCursor of a page")
	}
	return id
}

// bound is the smallest id of the millisecond at or after a time: ids begin with
// theirs, so a range of time is a range of ids.
func (q *query) bound(name string) uuid.UUID {
	value, given := q.get(name)
	if !given {
		return uuid.Nil
	}
	t, err := parseTime(value)
	if err != nil {
		q.faults.add(name, "INVALID_TIMESTAMP", err.Error())
		return uuid.Nil
	}
	ms := t.Add(time.Millisecond - 1).UnixMilli()
	if ms < 1 || ms >= 1<<48 {
		q.faults.add(name, "OUT_OF_RANGE", "must be between 1970 and 9999")
		return uuid.Nil
	}
	var id uuid.UUID
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// printableName keeps a made-up name short in the answer.
func printableName(name string) string {
	const longest = 128
	if len(name) > longest {
		name = name[:longest]
	}
	return name
}
