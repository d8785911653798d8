package judge

import (
	"context"
	"fmt"
)

const feedbackSQL = `
SELECT e.outbox_id, coalesce(o.status, ''), coalesce(o.outcome_unknown, false), bool_and(e.applied_at IS NOT NULL),
       bool_or(e.kind <> 'Send'), count(*)
FROM ses_events e LEFT JOIN email_outbox o ON o.id = e.outbox_id
GROUP BY e.outbox_id, o.status, o.outcome_unknown`

// tryFeedback: what SES said that it took is SENT, and nobody calls it unknown any more.
func (j *Judge) tryFeedback(ctx context.Context) error {
	rows, err := j.stage.Database.QueryContext(ctx, feedbackSQL)
	if err != nil {
		return fmt.Errorf("read feedback: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, status string
		var unknown, applied, more bool
		var n int
		if err := rows.Scan(&id, &status, &unknown, &applied, &more, &n); err != nil {
			return fmt.Errorf("read feedback: %w", err)
		}
		j.Counts.News += n
		r := j.emails[id]
		switch {
		case status != sent || unknown || !applied:
			j.Find(Denied, "SES told of email %s, which is %s, outcome_unknown %v; the news was applied: %v", id, status, unknown, applied)
		case r != nil && (r.timeline == nil || more && !r.timeline.told): // Send says nothing new of a SENT email
			j.Find(Path, "SES told of email %s, and its events do not say so", id)
		case r != nil && r.timeline.uncertain && !r.duplicate:
			j.Counts.Told++
		}
		if r != nil && r.timeline != nil {
			r.timeline.told = true // Send clears outcome_unknown without an event
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read feedback: %w", err)
	}
	if c := j.stage.Mail.Simulator.Events(); c.Refused+c.Dropped > 0 || c.Pending > 0 {
		j.Find(Promise, "of SES's notifications %d were refused, %d found no room and %d were not taken", c.Refused, c.Dropped, c.Pending)
	}
	return nil
}
