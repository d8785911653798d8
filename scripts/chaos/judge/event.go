package judge

import (
	"context"
	"fmt"

	"email-gateway/shared/email"
)

const eventsSQL = `SELECT email_log_id, seq, type FROM email_events ORDER BY email_log_id, seq`

// readEvents walks each email's timeline along the state diagram.
func (j *Judge) readEvents(ctx context.Context) error {
	rows, err := j.stage.Database.QueryContext(ctx, eventsSQL)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	defer rows.Close()
	var (
		current string
		last    email.EventType
		seq     int
	)
	for rows.Next() {
		var id, kind string
		var n int
		if err := rows.Scan(&id, &n, &kind); err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		j.Counts.Events++
		if id != current {
			j.endTimeline(current, last)
			current, last, seq = id, "", 0
		}
		next := email.EventType(kind)
		if n != seq+1 {
			j.Find(Path, "email %s: event %d follows event %d", id, n, seq)
		}
		if !email.MayFollow(last, next) {
			j.Find(Path, "email %s: %s follows %q", id, next, last)
		}
		seq, last = n, next
	}
	j.endTimeline(current, last)
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	return nil
}

// endTimeline holds the last event to the email's row.
func (j *Judge) endTimeline(id string, last email.EventType) {
	if id == "" {
		return
	}
	r := j.emails[id]
	if r == nil {
		j.Find(Path, "email %s has events and no row", id)
		return
	}
	r.hasEvent = true
	if email.Status(r.status).Final() && string(last) != r.status {
		j.Find(Path, "email %s is %s, and its last event is %s", id, r.status, last)
	}
}
