package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// DueRow is an outbox row that a dispatcher has taken because it was due.
type DueRow struct {
	ID        uuid.UUID       `db:"id"`
	LaneID    int64           `db:"lane_id"`
	Payload   json.RawMessage `db:"payload"`
	Attempts  int             `db:"attempts"`
	Throttles int             `db:"throttles"`
	NextAt    time.Time       `db:"next_at"`
	TakenAt   time.Time       `db:"enqueued_at"`
	// HadTask: a delayed task should have run this retry, and is overdue.
	HadTask bool `db:"had_task"`
}

// dueSQL is the condition under which row o is due for a dispatcher. A retry with a delayed task on the queue (enqueued_at is
// set) is due only when the task is 5 s late: asynq stores times in whole seconds, and may be late by one.
//
// An email past its deadline is due too: the worker expires it, unless the sweeper was faster. If such rows were left out, a
// statement with a LIMIT would read all of them, since no index of a lane's rows has the deadline: when many emails of one
// tenant expire at once, no statement about several lanes would end in time.
const dueSQL = `o.status IN ('PENDING', 'RETRY_SCHEDULED') AND o.next_at <= now()
          AND (o.status = 'PENDING' OR o.enqueued_at IS NULL OR o.next_at <= now() - interval '5 s')`

// OverdueEmail is an email whose deadline passed while it waited.
type OverdueEmail struct {
	ID           uuid.UUID `db:"id"`
	ExpiresAt    time.Time `db:"expires_at"`
	HasAggregate bool      `db:"about"` // a program may be changing it
	Cause        string    `db:"cause"` // why it waited, one of ExpiryCauses
}

// ExpiryCauses returns the reasons why an email may wait until its deadline: its company is suspended; its mailing is paused, by
// the company or by the reputation guard; an operator paused its lane; or none of these.
func ExpiryCauses() []string { return []string{"suspended", "paused", "held", "none"} }

// overdueSQL finds rows by email_outbox_open, a short range of it for each status, and their lanes and companies by primary key.
// It takes share locks on the rows until the end of the statement and skips rows that another transaction has locked, so that
// these do not fill the list.
const overdueSQL = `
SELECT due.id, due.expires_at, due.about,
       CASE WHEN c.suspended_at IS NOT NULL THEN 'suspended'
            WHEN l.paused_at IS NOT NULL OR c.mailings_paused_at IS NOT NULL AND l.mailing_id IS NOT NULL THEN 'paused'
            WHEN l.held_at IS NOT NULL THEN 'held' ELSE 'none' END AS cause
FROM unnest('{PENDING,ENQUEUED,RETRY_SCHEDULED}'::text[]) AS waits(status)
CROSS JOIN LATERAL (
    SELECT id, expires_at, aggregate_type IS NOT NULL AS about, lane_id, company_id FROM email_outbox
    WHERE status = waits.status AND status IN ('PENDING', 'ENQUEUED', 'PROCESSING', 'RETRY_SCHEDULED', 'OUTCOME_UNKNOWN')
      AND target = 'email:send' AND expires_at <= now()
    ORDER BY expires_at LIMIT $1 FOR SHARE SKIP LOCKED
) due
LEFT JOIN dispatch_lanes l ON l.id = due.lane_id
LEFT JOIN companies c ON c.id = due.company_id
ORDER BY due.expires_at LIMIT $1`

// Overdue lists at most limit overdue emails.
func (s *Store) Overdue(ctx context.Context, limit int) ([]OverdueEmail, error) {
	var overdue []OverdueEmail
	if err := s.db.SelectContext(ctx, &overdue, overdueSQL, limit); err != nil {
		return nil, fmt.Errorf("list overdue emails: %w", pg.Translate(err))
	}
	return overdue, nil
}
