// Package checker is the consistency checker: after the run it compares the apis' responses, Postgres
// and SES's ledger, row by row. It uses none of the gateway's own code: it has its own copy of the
// state diagram and of the queues' names. Only the chaos run uses it.
package checker

import (
	"context"
	"fmt"
	"time"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/fault"
	"email-gateway/scripts/chaos/load"
)

// The promises, as named in findings.
const (
	// Lost: accepted, and no row, no final state, or SENT without acceptance by SES.
	Lost = "lost"
	// Duplicate: SES accepted it more than once and its row is not flagged.
	Duplicate = "duplicate without a flag"
	// TooManyDuplicates: SES accepted more emails twice than its feedback leaves unknown.
	TooManyDuplicates = "too many flagged duplicates"
	// TwoRows: one request became two emails.
	TwoRows = "two rows for one request"
	// NotRecorded: its row says that it was not sent, but SES accepted it.
	NotRecorded = "accepted by SES, but not SENT"
	// Path: its events are no path of the state diagram, or do not end at the row's status.
	InvalidEvents = "invalid events"
	// Unexplained: a row is flagged as unknown or as a possible duplicate, or is FAILED, without a
	// reason.
	Unexplained = "flag without a reason"
	// Deadline: it reached its final state too late.
	Deadline = "past its deadline"
	// Promise: the gateway did not act as an api's response said, or the response was wrong.
	Promise = "broken promise"
	// Altered: SES received another subject, html or attachment than was accepted.
	Altered = "content altered"
	// PartOfBatch: some emails of a batch are stored, and others are not.
	PartOfBatch = "part of a batch"
	// InconsistentCounts: a mailing's counts, entries and emails differ.
	InconsistentCounts = "inconsistent counts of a mailing"
	// RecipientMismatch: a recipient differs from the data that were accepted about the person.
	RecipientMismatch = "recipient differs from accepted data"
	// MissingEvent: a reader of the events or a webhook endpoint did not get an event.
	MissingEvent = "event not delivered"
	// EventOrder: events came in another order than before, or than in the email's timeline.
	EventOrder = "order of events"
	// Slow: the quiet tenant's emails waited too long because of others.
	Slow = "quiet tenant delayed"
	// Unfinished: an unfinished task or row.
	Unfinished = "unfinished work"
	// Size: too many tasks on Redis, or too much memory.
	Size = "size limit exceeded"
	// Crash: a program panicked.
	Crash = "crash"
	// Leak: an address or a CPF in clear text where it must not be.
	Leak = "personal data in clear text"
)

// Counts are what was checked.
type Counts struct {
	Rows               map[string]int `json:"rows"`               // emails by status
	Requests           int            `json:"requests"`           // at SES
	Accepted           int            `json:"accepted"`           // by SES
	Taken              int            `json:"taken"`              // emails that SES accepted
	Duplicates         int            `json:"duplicates"`         // of these, emails that it accepted more than once
	Flagged            int            `json:"flagged"`            // emails that are possible_duplicate
	Unknown            int            `json:"outcomeUnknown"`     // emails that are outcome_unknown at the end
	UnknownOutcomes    int            `json:"unknownOutcomes"`    // attempts with an unknown outcome
	NoRequest          int            `json:"withoutRequest"`     // of those, attempts without a request to SES
	Notifications      int            `json:"notifications"`      // applied notifications of SES
	ResolvedByFeedback int            `json:"resolvedByFeedback"` // unknown outcomes that they resolved
	// Failed emails by error code.
	Failed     map[string]Failures `json:"failed"`
	Events     int                 `json:"events"`
	Entries    int                 `json:"entries"`
	Recipients int                 `json:"recipients"`
	Statements int                 `json:"statements"` // accepted about these recipients
	Quiet      Quiet               `json:"quiet"`
	Feed       FeedCounts          `json:"feed"`
	Contents   Contents            `json:"contents"`
	Batches    Batches             `json:"batches"`
}

// Failures are emails that failed with one error code; for NoRequest of them SES received no
// request.
type Failures struct {
	Count     int `json:"count"`
	NoRequest int `json:"withoutRequest"`
}

// Checker compares what clients, Postgres and SES have. It adds findings for what differs.
type Checker struct {
	Counts   Counts
	Findings *Findings
	// Archived is the maximum number of tasks in the queues' archives at one time.
	Archived int64

	cluster     *cluster.Cluster
	records     load.Records
	injected    []fault.Injected
	accepted    map[string]*acceptance // by outbox id
	requests    map[string]int         // to SES, by outbox id
	first       map[string]time.Time   // request to SES, by outbox id
	times       []time.Time            // of all requests to SES, ascending
	sesRequests map[string]sesRequest  // by attempt id
	emails      map[string]*row        // by outbox id
	failures    int                    // FAILED events
	closures    []closure
}

// New returns a checker for a run with these accepted requests and faults. The load and the gateway
// must be idle.
func New(c *cluster.Cluster, records load.Records, injected []fault.Injected) *Checker {
	return &Checker{
		cluster: c, records: records, injected: injected, Findings: NewFindings(),
		accepted: make(map[string]*acceptance), requests: make(map[string]int), first: make(map[string]time.Time), sesRequests: make(map[string]sesRequest), emails: make(map[string]*row),
		closures: closures(records, injected),
		Counts:   Counts{Rows: make(map[string]int), Failed: make(map[string]Failures)},
	}
}

// Check runs all checks. An error means that the checks could not run.
func (c *Checker) Check(ctx context.Context) ([]Finding, error) {
	c.readRequests()
	for _, look := range []func(context.Context) error{
		c.readRows, c.readEvents, c.checkFeedback, c.checkMailings, c.checkRecipients, c.checkQueues, c.checkLogs,
	} {
		if err := look(ctx); err != nil {
			return nil, fmt.Errorf("check consistency: %w", err)
		}
	}
	c.checkAnswers()
	c.checkEmails()
	c.checkContents(c.cluster.Ledger())
	c.checkBatches()
	c.checkDuplicates()
	c.checkQuiet()
	c.checkUnknownOutcomes()
	return c.Findings.list(), nil
}
