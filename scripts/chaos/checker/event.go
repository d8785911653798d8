package checker

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// timeline summarizes the events of one email.
type timeline struct {
	// uncertain: an attempt had an unknown outcome. clearedByFeedback: feedback of SES was applied, which resolves it.
	// endedByFeedback: SENT was recorded by feedback, which may arrive after the deadline.
	uncertain, clearedByFeedback, endedByFeedback bool
	// mayRepeat: the events contain a reason for possible_duplicate. again: it was replayed
	// although the first attempt may have succeeded.
	mayRepeat, replayedUnknown bool
	unknownOutcomes            []unknownOutcome
	failures                   []failure
	since                      time.Time // the first event since the last REPLAYED
	tries                      []try     // since then
}

// try is one attempt and the event that ended it.
type try struct {
	attempt  string
	end      string
	inOutage bool // it is not counted: the provider did not work
}

// failure is one FAILED event, with the attempts since the last REPLAYED.
type failure struct {
	row      *row
	from, at time.Time
	previous string // event
	code     string
	unknown  bool // SES may have accepted it
	tries    []try
}

// unknownOutcome is one attempt with an unknown outcome.
type unknownOutcome struct {
	email, attempt string
	from, to       time.Time
}

// event is one event.
type event struct {
	email        string
	seq          int
	kind         string
	at           time.Time
	attempt      string // of SENT_ATTEMPT
	code         string // its error code
	unknown      bool   // FAILED although SES may have accepted it
	inOutage     bool   // OUTCOME_UNKNOWN while the provider did not work
	fromFeedback bool   // SENT, by SES's feedback
}

const eventsSQL = `
SELECT email_log_id, seq, type, created_at, coalesce(metadata ->> 'attemptId', ''), coalesce(metadata ->> 'errorCode', ''),
       coalesce((metadata ->> 'outcomeUnknown')::boolean, false), metadata ? 'feedback', coalesce((metadata ->> 'inOutage')::boolean, false)
FROM email_events ORDER BY email_log_id, seq`

// readEvents checks each email's timeline against the state diagram.
func (c *Checker) readEvents(ctx context.Context) error {
	rows, err := c.cluster.Database.QueryContext(ctx, eventsSQL)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	defer rows.Close()
	var path []event // of one email
	for rows.Next() {
		var s event
		if err := rows.Scan(&s.email, &s.seq, &s.kind, &s.at, &s.attempt, &s.code, &s.unknown, &s.fromFeedback, &s.inOutage); err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		c.Counts.Events++
		if len(path) > 0 && path[0].email != s.email {
			c.checkTimeline(path)
			path = path[:0]
		}
		path = append(path, s)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	if len(path) > 0 {
		c.checkTimeline(path)
	}
	return nil
}

// checkTimeline checks and summarizes the timeline of one email.
func (c *Checker) checkTimeline(path []event) {
	id, last := path[0].email, path[len(path)-1].kind
	r := c.emails[id]
	if r == nil {
		c.Findings.Add(InvalidEvents, "email %s has events but no row", id)
		return
	}
	r.timeline = new(timeline)
	previous := event{}
	for i, s := range path {
		if s.seq != i+1 {
			c.Findings.Add(InvalidEvents, "email %s: event %d at position %d", id, s.seq, i+1)
		}
		if !follows(previous.kind, s.kind) {
			c.Findings.Add(InvalidEvents, "email %s: %s follows %q", id, s.kind, previous.kind)
		}
		if s.kind == attempt {
			c.checkClosures(r, s.at)
		}
		r.timeline.add(previous, s)
		if s.kind == failed {
			t := r.timeline
			t.failures = append(t.failures, failure{r, t.since, s.at, previous.kind, s.code, s.unknown, slices.Clone(t.tries)})
			c.failures++
		}
		previous = s
	}
	if last == attempt { // in flight
		r.timeline.unknownOutcomes = r.timeline.unknownOutcomes[:len(r.timeline.unknownOutcomes)-1]
	}
	c.Counts.UnknownOutcomes += len(r.timeline.unknownOutcomes)
	if isFinal(r.status) && !mayEndWith(r.status, last) {
		c.Findings.Add(InvalidEvents, "email %s is %s, and its last event is %s", id, r.status, last)
	}
}

// mayEndWith reports whether an email of the status may have this as its last event: SES publishes events
// after SENT.
func mayEndWith(status, last string) bool {
	return status == last || status == sent && slices.Contains(feedback, last)
}

// add processes the next event.
func (t *timeline) add(previous, s event) {
	if t.since.IsZero() || previous.kind == replayed {
		t.since, t.tries = s.at, nil
	}
	if previous.kind == attempt {
		t.tries = append(t.tries, try{previous.attempt, s.kind, s.inOutage})
	}
	switch {
	case s.kind == attempt:
		t.unknownOutcomes = append(t.unknownOutcomes, unknownOutcome{email: s.email, attempt: s.attempt, from: s.at}) // until the next event
		return
	case s.kind == failed:
		t.uncertain = t.uncertain || s.unknown
	case s.kind == scheduled:
		t.mayRepeat = t.mayRepeat || previous.kind == unknown && !refusedLate(previous, s)
	case s.kind == replayed:
		t.mayRepeat, t.replayedUnknown = t.mayRepeat || t.uncertain, t.replayedUnknown || t.uncertain
	case s.kind == sent:
		t.clearedByFeedback, t.endedByFeedback = t.clearedByFeedback || s.fromFeedback, s.fromFeedback
	case slices.Contains(feedback, s.kind):
		t.clearedByFeedback, t.mayRepeat = true, t.mayRepeat || s.kind == doubled
	}
	if previous.kind != attempt {
		return
	}
	if s.kind != unknown {
		t.unknownOutcomes = t.unknownOutcomes[:len(t.unknownOutcomes)-1]
		return
	}
	t.uncertain = true
	t.unknownOutcomes[len(t.unknownOutcomes)-1].to = s.at
}

// refusedLate reports whether the attempt's own worker scheduled the retry, because of an error
// after the attempt had been given up: SES refused it, so the retry cannot be a duplicate. Both
// events of one error have the same code; a dispatcher that gives up waiting uses the code unknown.
func refusedLate(first, retry event) bool {
	return retry.code != unknown && retry.code != first.code
}
