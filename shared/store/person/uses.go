package person

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// use describes when the identifiers of a trace were used with its address.
type use struct {
	span
	requests map[request]bool
}

// request is a mailing, or a request at one time: a client may give all of its requests the same id. Of recipients the
// request is unknown: those stated at one time have the request "".
type request struct {
	id   string
	time int64 // in requestTime; 0 for a mailing
}

// requestTime is longer than most jobs that send emails under one request id, and twice of it is shorter than the time
// between two daily runs.
const requestTime = 6 * time.Hour

// requests returns the requests to which a row belongs. Rows stated less than requestTime apart have one in common, rows
// stated twice as long apart have none.
func (r Row) requests() []request {
	if r.trace.table == Entries {
		return []request{{id: r.request}}
	}
	seconds, _ := r.stated.Time().UnixTime()
	at := seconds / int64(requestTime.Seconds())
	return []request{{r.request, at}, {r.request, at + 1}}
}

// add adds the traces of a row, and when its address was stated.
func (f *finder) add(r Row) {
	for _, t := range r.traces() {
		u := f.traces[t]
		if u == nil {
			u = &use{requests: map[request]bool{}}
			f.traces[t] = u
		}
		if r.stated == uuid.Nil || t.address == "" {
			continue
		}
		u.span = u.with(span{r.stated, r.stated})
		for _, request := range r.requests() {
			u.requests[request] = true
		}
	}
}

// simultaneous reports whether two groups of addresses were used at the same time in the traces: in one request or mailing, or
// alternately.
func (f *finder) simultaneous(traces []trace, g groups) bool {
	spans, requests := map[string]span{}, map[request]string{}
	for _, t := range traces {
		u := f.traces[t]
		if u.span == (span{}) {
			continue
		}
		group := g.of(strings.ToLower(t.address))
		spans[group] = spans[group].with(u.span)
		for r := range u.requests {
			if first, known := requests[r]; known && first != group {
				return true
			}
			requests[r] = group
		}
	}
	sorted := make([]span, 0, len(spans))
	for _, used := range spans {
		sorted = append(sorted, used)
	}
	slices.SortFunc(sorted, func(a, b span) int { return compareIDs(a.first, b.first) })
	var last uuid.UUID
	for _, used := range sorted {
		if compareIDs(used.first, last) < 0 {
			return true
		}
		last = used.last
	}
	return false
}

// span holds the first and the last one of some ids, which are UUIDv7.
type span struct{ first, last uuid.UUID }

func (s span) with(other span) span {
	if s == (span{}) {
		return other
	}
	return span{earlier(s.first, other.first), later(s.last, other.last)}
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

func earlier(a, b uuid.UUID) uuid.UUID {
	if compareIDs(a, b) < 0 {
		return a
	}
	return b
}

func later(a, b uuid.UUID) uuid.UUID {
	if compareIDs(a, b) > 0 {
		return a
	}
	return b
}
