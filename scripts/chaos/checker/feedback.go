package checker

import (
	"context"
	"fmt"
)

const feedbackSQL = `
SELECT e.outbox_id, coalesce(o.status, ''), coalesce(o.outcome_unknown, false), bool_and(e.applied_at IS NOT NULL),
       bool_or(e.kind <> 'Send'), count(*)
FROM ses_events e LEFT JOIN email_outbox o ON o.id = e.outbox_id
GROUP BY e.outbox_id, o.status, o.outcome_unknown`

// checkFeedback checks that emails with feedback of SES are SENT and no longer outcome_unknown.
func (c *Checker) checkFeedback(ctx context.Context) error {
	rows, err := c.cluster.Database.QueryContext(ctx, feedbackSQL)
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
		c.Counts.Notifications += n
		r := c.emails[id]
		switch {
		case status != sent || unknown || !applied:
			c.AddFinding(NotRecorded, "SES reported email %s, which is %s, outcome_unknown %v; notification applied: %v", id, status, unknown, applied)
		case r != nil && (r.timeline == nil || more && !r.timeline.hasFeedback): // Send adds no information to a SENT email
			c.AddFinding(InvalidEvents, "SES reported email %s, but its events do not contain it", id)
		case r != nil && r.timeline.uncertain && !r.duplicate:
			c.Counts.ResolvedByFeedback++
		}
		if r != nil && r.timeline != nil {
			r.timeline.hasFeedback = true // Send clears outcome_unknown without an event
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read feedback: %w", err)
	}
	if events := c.cluster.Mail.Simulator.Events(); events.Refused+events.Dropped > 0 || events.Pending > 0 {
		c.AddFinding(Promise, "of SES's notifications %d were refused, %d dropped and %d not delivered", events.Refused, events.Dropped, events.Pending)
	}
	return nil
}
