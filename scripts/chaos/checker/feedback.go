package checker

import (
	"context"
	"fmt"

	"email-gateway/scripts/sessim"
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
			c.Findings.Add(NotRecorded, "SES reported email %s, which is %s, outcome_unknown %v; notification applied: %v", id, status, unknown, applied)
		case r != nil && (r.timeline == nil || more && !r.timeline.clearedByFeedback): // Send adds no information to a SENT email
			c.Findings.Add(InvalidEvents, "SES reported email %s, but its events do not contain it", id)
		case r != nil && r.timeline.uncertain && !r.duplicate:
			c.Counts.ResolvedByFeedback++
		}
		if r != nil && r.timeline != nil {
			r.timeline.clearedByFeedback = true // Send clears outcome_unknown without an event
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read feedback: %w", err)
	}
	if events := c.cluster.Mail.Simulator.Events(); events.Refused+events.Dropped > 0 || events.Pending > 0 {
		c.Findings.Add(Promise, "of SES's notifications %d were refused, %d dropped and %d not delivered", events.Refused, events.Dropped, events.Pending)
	}
	return c.checkNotifications(ctx, c.cluster.Mail.Simulator.Delivered())
}

const notificationsSQL = `SELECT sns_message_id, coalesce(outbox_id::text, ''), kind FROM ses_events WHERE applied_at IS NOT NULL`

// checkNotifications checks that every notification that an api answered with 2xx is stored and applied.
func (c *Checker) checkNotifications(ctx context.Context, delivered []sessim.Delivered) error {
	applied := make(map[sessim.Delivered]bool)
	err := each(ctx, c.cluster.Database, notificationsSQL, nil, func(scan func(...any) error) error {
		var n sessim.Delivered
		err := scan(&n.MessageID, &n.OutboxID, &n.Kind)
		applied[n] = true
		return err
	})
	if err != nil {
		return fmt.Errorf("read notifications: %w", err)
	}
	c.compareNotifications(delivered, applied)
	return nil
}

func (c *Checker) compareNotifications(delivered []sessim.Delivered, applied map[sessim.Delivered]bool) {
	for _, n := range delivered {
		if !applied[n] {
			c.Findings.Add(Lost, "an api accepted the notification %+v, which was not applied", n)
		}
	}
}
