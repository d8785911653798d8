// Package judge compares, when all is over, what the apis promised, what Postgres says
// and what SES got, row by row. It asks none of the gateway's own code: the state diagram
// and the queues' names are written down here once more. It is used by the chaos run only.
package judge

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"email-gateway/scripts/chaos/fault"
	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/chaos/stage"
)

// The promises, as findings name them.
const (
	// Lost: accepted, and no row, no end, or SENT without SES ever having taken it.
	Lost = "lost"
	// Duplicate: SES took it more than once and its row does not say so.
	Duplicate = "duplicate not announced"
	// Repeated: SES took more emails twice than its feedback leaves in doubt.
	Repeated = "too many announced duplicates"
	// TwoRows: one request became two emails.
	TwoRows = "one request, two rows"
	// Denied: its row says that it was not sent, and SES took it.
	Denied = "accepted by SES, and its row denies it"
	// Path: its events are no path of the state diagram, or do not end where its row is.
	Path = "events are not the row's path"
	// Groundless: a row says of itself that nobody knows how it ended or that it may come
	// twice, or that it failed, and nothing happened that would be a reason.
	Groundless = "flag without a reason"
	// Deadline: it ended later than it may.
	Deadline = "behind its deadline"
	// Promise: an answer of the api was not kept, or should never have been given.
	Promise = "broken promise"
	// Sums: a mailing's numbers, entries and emails do not agree.
	Sums = "mailing does not add up"
	// Forgotten: a recipient is not what was accepted about the person.
	Forgotten = "recipient is not what was accepted"
	// Slow: a quiet tenant's emails waited too long for others'.
	Slow = "quiet tenant waits"
	// Leftover: a task or a row that is still at work.
	Leftover = "left over"
	// Size: more stood on Redis or was taken of memory than may be, whatever waits.
	Size = "too much at a time"
	// Crash: a program panicked.
	Crash = "crash"
	// Leak: an address or a number in clear where it must not be.
	Leak = "in clear"
)

// Finding is a promise that was not kept.
type Finding struct {
	Promise  string   `json:"promise"`
	Count    int      `json:"count"`
	Examples []string `json:"examples"`
}

// maxExamples keeps a report readable when everything went wrong.
const maxExamples = 10

// Counts are what was looked at.
type Counts struct {
	Rows       map[string]int `json:"rows"`           // emails by status
	Requests   int            `json:"requests"`       // at SES
	Accepted   int            `json:"accepted"`       // by SES
	Taken      int            `json:"taken"`          // emails that SES took
	Duplicates int            `json:"duplicates"`     // of these, emails that it took more than once
	Flagged    int            `json:"flagged"`        // emails that are possible_duplicate
	Unknown    int            `json:"outcomeUnknown"` // emails that are, at the end
	Doubts     int            `json:"doubts"`         // attempts of which nobody knew how they ended
	NeverAsked int            `json:"neverAsked"`     // of those, attempts of which SES knows nothing
	News       int            `json:"news"`           // notifications of SES that were taken in
	Told       int            `json:"told"`           // doubts that they ended
	// Failed emails by the reason.
	Failed     map[string]Failures `json:"failed"`
	Events     int                 `json:"events"`
	Entries    int                 `json:"entries"`
	Recipients int                 `json:"recipients"`
	Statements int                 `json:"statements"` // accepted about these
	Quiet      Quiet               `json:"quiet"`
}

// Failures are emails that failed for one reason; for NeverAsked of them SES got no
// request at all.
type Failures struct {
	Count      int `json:"count"`
	NeverAsked int `json:"neverAsked"`
}

// Judge collects findings.
type Judge struct {
	Counts Counts
	// Archived is the most tasks that were seen in the queues' archives at one time.
	Archived int64

	stage    *stage.Stage
	notes    load.Notes
	played   []fault.Played
	found    map[string]*Finding
	accepted map[string]*acceptance // by outbox id
	requests map[string]int         // to SES, by outbox id
	first    map[string]time.Time   // request to SES, by outbox id
	times    []time.Time            // of all requests to SES, ascending
	asks     map[string]ask         // by attempt id
	emails   map[string]*row        // by outbox id
	failures int                    // FAILED events
	stopped  map[string]time.Time   // mailings, by id: when they had been cancelled
}

// New makes a judge of one run, of what was accepted and what was broken in it. The load
// and the gateway must be at rest.
func New(s *stage.Stage, notes load.Notes, played []fault.Played) *Judge {
	stopped := make(map[string]time.Time, len(notes.Stopped))
	for id, at := range notes.Stopped {
		stopped[id.String()] = at
	}
	return &Judge{
		stage: s, notes: notes, played: played, found: make(map[string]*Finding),
		accepted: make(map[string]*acceptance), requests: make(map[string]int), first: make(map[string]time.Time), asks: make(map[string]ask), emails: make(map[string]*row),
		stopped: stopped,
		Counts:  Counts{Rows: make(map[string]int), Failed: make(map[string]Failures)},
	}
}

// Try looks at everything. An error means that it could not be looked at.
func (j *Judge) Try(ctx context.Context) ([]Finding, error) {
	j.readLedger()
	for _, look := range []func(context.Context) error{
		j.readRows, j.readEvents, j.tryFeedback, j.tryMailings, j.tryRecipients, j.tryQueues, j.tryLogs,
	} {
		if err := look(ctx); err != nil {
			return nil, fmt.Errorf("judge: %w", err)
		}
	}
	j.tryAnswers()
	j.tryEmails()
	j.tryDuplicates()
	j.tryQuiet()
	j.tryDoubts()
	return j.findings(), nil
}

// Find adds a finding.
func (j *Judge) Find(promise, format string, args ...any) {
	f := j.found[promise]
	if f == nil {
		f = &Finding{Promise: promise}
		j.found[promise] = f
	}
	f.Count++
	if len(f.Examples) < maxExamples {
		f.Examples = append(f.Examples, fmt.Sprintf(format, args...))
	}
}

// Found counts the findings of one promise so far.
func (j *Judge) Found(promise string) int {
	if f := j.found[promise]; f != nil {
		return f.Count
	}
	return 0
}

func (j *Judge) findings() []Finding {
	list := make([]Finding, 0, len(j.found))
	for _, promise := range slices.Sorted(maps.Keys(j.found)) {
		list = append(list, *j.found[promise])
	}
	return list
}
