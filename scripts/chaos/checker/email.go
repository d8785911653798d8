package checker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"email-gateway/scripts/chaos/load"
)

// acceptance records how often SES accepted one email, and for whom.
type acceptance struct {
	times int
	to    string
}

// row is an email as the outbox has it.
type row struct {
	id, status, delivery string
	to                   string
	mailing              string // "" for a single email
	company, companyID   string // by name and id
	unknown, duplicate   bool
	code                 string // error code of a failed email
	expires, processed   time.Time
	late                 bool // it reached its final state long after the deadline
	lastEvent, logStatus string
	logDuplicate         bool

	timeline *timeline // nil: no events
}

func (c *Checker) readRequests() {
	for _, e := range c.cluster.Ledger() {
		c.Counts.Requests++
		c.times = append(c.times, e.Time)
		c.requests[e.OutboxID]++
		if at, known := c.first[e.OutboxID]; !known || e.Time.Before(at) {
			c.first[e.OutboxID] = e.Time
		}
		if _, twice := c.sesRequests[e.AttemptID]; twice {
			c.Findings.Add(Promise, "SES received two requests for one attempt of email %s", e.OutboxID)
		}
		c.sesRequests[e.AttemptID] = newRequest(e)
		if !e.Accepted {
			continue
		}
		c.Counts.Accepted++
		if len(e.To) != 1 {
			c.Findings.Add(Promise, "SES accepted an email to %d addresses", len(e.To))
			continue
		}
		a := c.accepted[e.OutboxID]
		if a == nil {
			a = &acceptance{to: e.To[0]}
			c.accepted[e.OutboxID] = a
		}
		a.times++
		if a.to != e.To[0] {
			c.Findings.Add(Promise, "email %s was sent to %s and to %s", e.OutboxID, a.to, e.To[0])
		}
	}
	slices.SortFunc(c.times, time.Time.Compare) // entries are not in the order of their times
}

const rowsSQL = `
SELECT o.id, o.status, o.delivery, o.payload ->> 'to',
       coalesce(l.mailing_id::text, ''), o.outcome_unknown, o.possible_duplicate,
       coalesce(e.status, ''), coalesce(e.last_event, ''), coalesce(e.possible_duplicate, false), coalesce(e.error_code, ''),
       c.name, o.company_id, o.expires_at, coalesce(o.processed_at, 'epoch'),
       coalesce(o.processed_at > o.expires_at + $1 * interval '1 second', false), coalesce(e.company_id = o.company_id, true)
FROM email_outbox o
JOIN companies c ON c.id = o.company_id
LEFT JOIN dispatch_lanes l ON l.id = o.lane_id
LEFT JOIN email_logs e ON e.outbox_id = o.id
WHERE o.target = 'email:send'`

// deadlineGrace is how long after the deadline an attempt that began before it may last: its worker's
// lease, the rescuer's interval, the wait for feedback and a freeze.
const deadlineGrace = 2 * time.Minute

func (c *Checker) readRows(ctx context.Context) error {
	rows, err := c.cluster.Database.QueryContext(ctx, rowsSQL, deadlineGrace.Seconds())
	if err != nil {
		return fmt.Errorf("read emails: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		var own bool
		err := rows.Scan(&r.id, &r.status, &r.delivery, &r.to, &r.mailing, &r.unknown, &r.duplicate,
			&r.logStatus, &r.lastEvent, &r.logDuplicate, &r.code,
			&r.company, &r.companyID, &r.expires, &r.processed, &r.late, &own)
		if err != nil {
			return fmt.Errorf("read emails: %w", err)
		}
		if !own {
			c.Findings.Add(Promise, "the log of email %s belongs to another company", r.id)
		}
		c.emails[r.id] = &r
		c.Counts.Rows[r.status]++
		if r.unknown {
			c.Counts.Unknown++
		}
		if r.duplicate {
			c.Counts.Flagged++
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read emails: %w", err)
	}
	return nil
}

// singleRows counts the rows of emails that belong to no mailing, by address. Each has an address of its own.
func (c *Checker) singleRows() map[string]int {
	rows := make(map[string]int, len(c.emails))
	for _, r := range c.emails {
		if r.mailing == "" {
			rows[r.to]++
		}
	}
	return rows
}

// checkAnswers compares the rows with the apis' responses.
func (c *Checker) checkAnswers() {
	for address, n := range c.singleRows() {
		if n > 1 {
			c.Findings.Add(TwoRows, "the request for %s became %d emails", address, n)
		}
	}
	for serial, a := range c.records.Emails {
		r := c.emails[a.ID.String()]
		switch {
		case r == nil:
			c.Findings.Add(Lost, "email %d was accepted as %s, and there is no such row", serial, a.ID)
		case r.to != load.Address(serial):
			c.Findings.Add(Promise, "email %d is %s, which is for %s", serial, a.ID, r.to)
		case a.AtMostOnce != (r.delivery == atMostOnce):
			c.Findings.Add(Promise, "email %d is %s, whose delivery is %s", serial, a.ID, r.delivery)
		}
	}
	for id := range c.records.Cancelled {
		// An attempt with an unknown outcome may turn out to have been accepted.
		if r := c.emails[id.String()]; r != nil && r.status != cancelled && (r.status != sent || r.timeline == nil || !r.timeline.uncertain) {
			c.Findings.Add(Promise, "email %s was cancelled with 200 and is %s", id, r.status)
		}
	}
	for _, complaint := range c.records.Refused {
		c.Findings.Add(Promise, "%s", complaint)
	}
	for _, what := range c.records.Unanswered {
		c.Findings.Add(Promise, "%s got no response", what)
	}
}

// checkEmails compares the rows with SES's ledger, and the ledger with the rows.
func (c *Checker) checkEmails() {
	c.Counts.Taken = len(c.accepted)
	for id, r := range c.emails {
		times := 0
		if a := c.accepted[id]; a != nil {
			times = a.times
			if !strings.EqualFold(a.to, r.to) {
				c.Findings.Add(Promise, "email %s is for %s and was sent to %s", id, r.to, a.to)
			}
		}
		if times > 1 {
			c.Counts.Duplicates++
		}
		c.checkEmail(r, times)
		c.checkFlags(r)
		c.checkReason(r)
	}
	c.checkFailures()
	for id, a := range c.accepted {
		if c.emails[id] == nil {
			c.Findings.Add(Promise, "SES accepted %d emails %q, and there is no such row", a.times, id)
		}
	}
}

const atMostOnce = "at_most_once"

func (c *Checker) checkEmail(r *row, times int) {
	switch {
	case !isFinal(r.status):
		c.Findings.Add(Lost, "email %s is still %s", r.id, r.status)
		return
	case r.status == sent && times == 0:
		c.Findings.Add(Lost, "email %s is SENT, but SES did not accept it", r.id)
	case r.status != sent && !r.unknown && times > 0:
		c.Findings.Add(NotRecorded, "email %s is %s, but SES accepted it %d times", r.id, r.status, times)
	}
	if times > 1 && !r.duplicate {
		c.Findings.Add(Duplicate, "email %s (%s, %s) was accepted by SES %d times", r.id, r.status, r.delivery, times)
	}
	if r.logStatus != r.status || r.logDuplicate != r.duplicate {
		c.Findings.Add(InvalidEvents, "email %s is %s, possibleDuplicate %v; its log says %q, %v", r.id, r.status, r.duplicate, r.logStatus, r.logDuplicate)
	}
	if !mayEndWith(r.status, r.lastEvent) {
		c.Findings.Add(InvalidEvents, "email %s is %s, and its log ends with %q", r.id, r.status, r.lastEvent)
	}
	t := r.timeline
	if t == nil {
		c.Findings.Add(InvalidEvents, "email %s is %s without an event", r.id, r.status)
		return
	}
	if times > 1 && r.delivery == atMostOnce && !t.replayedUnknown {
		c.Findings.Add(Duplicate, "email %s is at_most_once, but was accepted by SES %d times", r.id, times)
	}
	if r.late && !t.endedByFeedback {
		c.Findings.Add(Deadline, "email %s is %s, more than %s after its deadline", r.id, r.status, deadlineGrace)
	}
}

const (
	// duplicatesMax is the maximum share of emails that SES accepts more than once while it
	// publishes events of nearly all emails.
	duplicatesMax = 0.003
	// duplicatesFew are allowed in any run: a worker that is killed in a short run has as many
	// calls in flight.
	duplicatesFew = 10
)

// DuplicateShare is the share of emails that SES accepted more than once.
func (c Counts) DuplicateShare() float64 {
	return float64(c.Duplicates) / float64(max(c.Taken, 1))
}

// checkDuplicates limits the share of duplicates: SES's feedback resolves nearly every unknown
// outcome before the email is sent again.
func (c *Checker) checkDuplicates() {
	if counts := c.Counts; counts.Duplicates > duplicatesFew && counts.DuplicateShare() > duplicatesMax {
		c.Findings.Add(TooManyDuplicates, "SES accepted %d of %d emails more than once, %.2f %%, limit %.1f %%", counts.Duplicates, counts.Taken, 100*counts.DuplicateShare(), 100*duplicatesMax)
	}
}
