package judge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"email-gateway/scripts/chaos/load"
)

// acceptance is what SES took of one email.
type acceptance struct {
	times int
	to    string
}

// row is an email as the outbox has it.
type row struct {
	id, status, delivery string
	to                   string
	mailing              string // "" for a single email
	unknown, duplicate   bool
	code                 string // why it failed
	late                 bool   // it ended behind its deadline
	lastEvent, logStatus string
	logDuplicate         bool

	timeline *timeline // nil: it has no events
}

func (j *Judge) readLedger() {
	for _, e := range j.stage.Ledger() {
		j.Counts.Requests++
		j.times = append(j.times, e.Time)
		j.requests[e.OutboxID]++
		if at, known := j.first[e.OutboxID]; !known || e.Time.Before(at) {
			j.first[e.OutboxID] = e.Time
		}
		if _, twice := j.asks[e.AttemptID]; twice {
			j.Find(Promise, "SES was asked twice for one attempt of email %s", e.OutboxID)
		}
		j.asks[e.AttemptID] = ask{clear: e.Accepted && e.Answered && e.Fault == ""}
		if !e.Accepted {
			continue
		}
		j.Counts.Accepted++
		if len(e.To) != 1 {
			j.Find(Promise, "SES took an email to %d addresses", len(e.To))
			continue
		}
		a := j.accepted[e.OutboxID]
		if a == nil {
			a = &acceptance{to: e.To[0]}
			j.accepted[e.OutboxID] = a
		}
		a.times++
		if a.to != e.To[0] {
			j.Find(Promise, "email %s went to %s and to %s", e.OutboxID, a.to, e.To[0])
		}
	}
	slices.SortFunc(j.times, time.Time.Compare) // a request may be received before one that is entered earlier
}

const rowsSQL = `
SELECT o.id, o.status, o.delivery, o.payload ->> 'to',
       coalesce(l.mailing_id::text, ''), o.outcome_unknown, o.possible_duplicate,
       coalesce(e.status, ''), coalesce(e.last_event, ''), coalesce(e.possible_duplicate, false), coalesce(e.error_code, ''),
       coalesce(o.processed_at > o.expires_at + $1 * interval '1 second', false)
FROM email_outbox o
LEFT JOIN dispatch_lanes l ON l.id = o.lane_id
LEFT JOIN email_logs e ON e.outbox_id = o.id
WHERE o.target = 'email:send'`

// overtime is what an attempt that began before the deadline may need behind it: its
// worker's lease, the rescuer's rounds, the wait for feedback and a freeze.
const overtime = 2 * time.Minute

func (j *Judge) readRows(ctx context.Context) error {
	rows, err := j.stage.Database.QueryContext(ctx, rowsSQL, overtime.Seconds())
	if err != nil {
		return fmt.Errorf("read emails: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		err := rows.Scan(&r.id, &r.status, &r.delivery, &r.to, &r.mailing, &r.unknown, &r.duplicate,
			&r.logStatus, &r.lastEvent, &r.logDuplicate, &r.code, &r.late)
		if err != nil {
			return fmt.Errorf("read emails: %w", err)
		}
		j.emails[r.id] = &r
		j.Counts.Rows[r.status]++
		if r.unknown {
			j.Counts.Unknown++
		}
		if r.duplicate {
			j.Counts.Flagged++
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read emails: %w", err)
	}
	return nil
}

// tryAnswers holds the rows to what the apis answered.
func (j *Judge) tryAnswers() {
	rowsOf := make(map[string]int, len(j.emails))
	for _, r := range j.emails {
		if r.mailing == "" {
			rowsOf[r.to]++ // each letter has an address of its own
		}
	}
	for address, n := range rowsOf {
		if n > 1 {
			j.Find(TwoRows, "the request for %s became %d emails", address, n)
		}
	}
	for serial, a := range j.notes.Emails {
		r := j.emails[a.ID.String()]
		switch {
		case r == nil:
			j.Find(Lost, "letter %d was accepted as %s, and there is no such row", serial, a.ID)
		case r.to != load.Address(serial):
			j.Find(Promise, "letter %d is %s, which goes to %s", serial, a.ID, r.to)
		case a.AtMostOnce != (r.delivery == atMostOnce):
			j.Find(Promise, "letter %d is %s, whose delivery is %s", serial, a.ID, r.delivery)
		case a.Suppressed != (r.status == suppressed), a.Suppressed && j.requests[r.id] > 0:
			j.Find(Promise, "letter %d is %s, its address suppressed: %v, and %s after %d requests to SES", serial, a.ID, a.Suppressed, r.status, j.requests[r.id])
		}
	}
	for id := range j.notes.Cancelled {
		// An attempt whose end nobody knew may turn out to have been taken.
		if r := j.emails[id.String()]; r != nil && r.status != cancelled && (r.status != sent || r.timeline == nil || !r.timeline.uncertain) {
			j.Find(Promise, "email %s was cancelled with 200 and is %s", id, r.status)
		}
	}
	for _, complaint := range j.notes.Refused {
		j.Find(Promise, "%s", complaint)
	}
	for _, what := range j.notes.Open {
		j.Find(Promise, "%s was never answered", what)
	}
}

// tryEmails holds each row to the ledger, and the ledger to the rows.
func (j *Judge) tryEmails() {
	faults := excuses(j.played)
	j.Counts.Taken = len(j.accepted)
	for id, r := range j.emails {
		times := 0
		if a := j.accepted[id]; a != nil {
			times = a.times
			if !strings.EqualFold(a.to, r.to) {
				j.Find(Promise, "email %s is for %s and went to %s", id, r.to, a.to)
			}
		}
		if times > 1 {
			j.Counts.Duplicates++
		}
		j.tryEmail(r, times)
		j.tryFlags(r)
		if r.status == failed {
			j.tryFailure(r, faults)
		}
	}
	for id, a := range j.accepted {
		if j.emails[id] == nil {
			j.Find(Promise, "SES took %d emails %q, and there is no such row", a.times, id)
		}
	}
}

const atMostOnce = "at_most_once"

func (j *Judge) tryEmail(r *row, times int) {
	switch {
	case !final(r.status):
		j.Find(Lost, "email %s is still %s", r.id, r.status)
		return
	case r.status == sent && times == 0:
		j.Find(Lost, "email %s is SENT, and SES never took it", r.id)
	case r.status != sent && !r.unknown && times > 0:
		j.Find(Denied, "email %s is %s, and SES took it %d times", r.id, r.status, times)
	}
	if times > 1 && !r.duplicate {
		j.Find(Duplicate, "email %s (%s, %s) was taken %d times", r.id, r.status, r.delivery, times)
	}
	if r.logStatus != r.status || r.logDuplicate != r.duplicate {
		j.Find(Path, "email %s is %s, possibleDuplicate %v; its log says %q, %v", r.id, r.status, r.duplicate, r.logStatus, r.logDuplicate)
	}
	if !ends(r.status, r.lastEvent) {
		j.Find(Path, "email %s is %s, and its log ends with %q", r.id, r.status, r.lastEvent)
	}
	t := r.timeline
	if t == nil {
		j.Find(Path, "email %s is %s without an event", r.id, r.status)
		return
	}
	if times > 1 && r.delivery == atMostOnce && !t.again {
		j.Find(Duplicate, "email %s is at_most_once, and was taken %d times", r.id, times)
	}
	if r.late && !t.told { // what SES tells late is a fact all the same
		j.Find(Deadline, "email %s is %s, more than %s behind its deadline", r.id, r.status, overtime)
	}
}

const (
	// duplicatesMax is the share of the emails that SES may have taken more than once while it
	// publishes events of nearly all.
	duplicatesMax = 0.003
	// duplicatesFew are allowed in any run: one worker that is killed in a short run has as many
	// calls under way.
	duplicatesFew = 10
)

// DuplicateShare is the share of the emails that SES took more than once.
func (c Counts) DuplicateShare() float64 {
	return float64(c.Duplicates) / float64(max(c.Taken, 1))
}

// tryDuplicates: SES's feedback ends nearly every unknown outcome before the email is sent
// again.
func (j *Judge) tryDuplicates() {
	if c := j.Counts; c.Duplicates > duplicatesFew && c.DuplicateShare() > duplicatesMax {
		j.Find(Repeated, "%d of %d emails were taken more than once, %.2f %%; at most %.1f %% may be", c.Duplicates, c.Taken, 100*c.DuplicateShare(), 100*duplicatesMax)
	}
}
