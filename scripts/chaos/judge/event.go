package judge

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// timeline is what the events of one email say.
type timeline struct {
	// uncertain: an attempt ended and nobody knew how. told: SES's feedback came.
	uncertain, told bool
	// announced: it may come twice, for a reason that can be read here. again: somebody
	// had it sent again although the first time may have been good.
	announced, again bool
	tried, failed    time.Time // the first attempt, and the last FAILED
	doubts           []doubt
}

// doubt is one attempt of which nobody knew how it ended.
type doubt struct {
	email, attempt string
	from, to       time.Time
}

// step is one event.
type step struct {
	email   string
	seq     int
	kind    string
	at      time.Time
	attempt string // of SENT_ATTEMPT
	code    string // the error it names
	unknown bool   // FAILED, and it says that SES may have taken it
	origin  bool   // SENT, by SES's feedback
}

const eventsSQL = `
SELECT email_log_id, seq, type, created_at, coalesce(metadata ->> 'attemptId', ''), coalesce(metadata ->> 'errorCode', ''),
       coalesce((metadata ->> 'outcomeUnknown')::boolean, false), metadata ? 'feedback'
FROM email_events ORDER BY email_log_id, seq`

// readEvents walks each email's timeline along the state diagram.
func (j *Judge) readEvents(ctx context.Context) error {
	rows, err := j.stage.Database.QueryContext(ctx, eventsSQL)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	defer rows.Close()
	var path []step // of one email
	for rows.Next() {
		var s step
		if err := rows.Scan(&s.email, &s.seq, &s.kind, &s.at, &s.attempt, &s.code, &s.unknown, &s.origin); err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		j.Counts.Events++
		if len(path) > 0 && path[0].email != s.email {
			j.readPath(path)
			path = path[:0]
		}
		path = append(path, s)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	if len(path) > 0 {
		j.readPath(path)
	}
	return nil
}

// readPath takes the timeline of one email.
func (j *Judge) readPath(path []step) {
	id, last := path[0].email, path[len(path)-1].kind
	r := j.emails[id]
	if r == nil {
		j.Find(Path, "email %s has events and no row", id)
		return
	}
	r.timeline = new(timeline)
	previous := step{}
	for i, s := range path {
		if s.seq != i+1 {
			j.Find(Path, "email %s: event %d stands at place %d", id, s.seq, i+1)
		}
		if !follows(previous.kind, s.kind) {
			j.Find(Path, "email %s: %s follows %q", id, s.kind, previous.kind)
		}
		if s.kind == attempt && j.stoppedBy(r, s.at) {
			j.Find(Promise, "email %s was tried at %s, when its mailing was cancelled with 200", id, s.at.Format(time.StampMilli))
		}
		if s.kind == failed {
			j.failures++
		}
		r.timeline.add(previous, s)
		previous = s
	}
	if last == attempt { // it is on its way still
		r.timeline.doubts = r.timeline.doubts[:len(r.timeline.doubts)-1]
	}
	j.Counts.Doubts += len(r.timeline.doubts)
	if final(r.status) && !ends(r.status, last) {
		j.Find(Path, "email %s is %s, and its last event is %s", id, r.status, last)
	}
}

// ends says that an email of the status may have this as its last event: SES goes on
// telling of what was sent.
func ends(status, last string) bool {
	return status == last || status == sent && slices.Contains(feedback, last)
}

// add takes the next event.
func (t *timeline) add(previous, s step) {
	switch {
	case s.kind == attempt:
		if t.tried.IsZero() {
			t.tried = s.at
		}
		t.doubts = append(t.doubts, doubt{email: s.email, attempt: s.attempt, from: s.at}) // until the next event
		return
	case s.kind == failed:
		t.failed = s.at
		t.uncertain = t.uncertain || s.unknown
	case s.kind == scheduled:
		t.announced = t.announced || previous.kind == unknown && !refusedLate(previous, s)
	case s.kind == replayed:
		t.announced, t.again = t.announced || t.uncertain, t.again || t.uncertain
	case s.kind == sent:
		t.told = t.told || s.origin
	case slices.Contains(feedback, s.kind):
		t.told, t.announced = true, t.announced || s.kind == doubled
	}
	if previous.kind != attempt {
		return
	}
	if s.kind != unknown {
		t.doubts = t.doubts[:len(t.doubts)-1]
		return
	}
	t.uncertain = true
	t.doubts[len(t.doubts)-1].to = s.at
}

// refusedLate says that the worker of the attempt itself had it sent again, when the error
// came after the attempt had been given up: SES did not take it, so that it cannot come twice.
// Both events of one error name the same code, and whoever gives up waiting names unknown.
func refusedLate(doubt, again step) bool {
	return again.code != unknown && again.code != doubt.code
}

// stoppedBy says that the mailing of the email had been cancelled by then: a claim that
// was under way is older than the answer.
func (j *Judge) stoppedBy(r *row, at time.Time) bool {
	stopped, found := j.stopped[r.mailing]
	return found && at.After(stopped.Add(near))
}
