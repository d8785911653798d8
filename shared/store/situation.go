package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
)

// Situation is an email with what decides, beside the email itself, whether and
// when it moves on: for an operator who asks why it is not sent yet.
type Situation struct {
	Email
	CompanyName     string     `db:"company_name"`
	SuspendedAt     *time.Time `db:"suspended_at"`
	SuspendedReason *string    `db:"suspended_reason"`
	// LastEvent is the newest of its timeline; nil before the first.
	LastEvent *email.EventType `db:"last_event"`

	// What follows stands in the outbox row and its lane, and is nil once the row is purged.
	Queue       *string         `db:"queue"`
	PausedAt    *time.Time      `db:"paused_at"`
	ParkedUntil *time.Time      `db:"parked_until"`
	Delivery    *email.Delivery `db:"delivery"`
	EnqueuedAt  *time.Time      `db:"enqueued_at"`
	LeaseUntil  *time.Time      `db:"lease_until"`
	ProcessedAt *time.Time      `db:"processed_at"`

	// AskedAt is the moment of all this by Postgres's clock, which alone decides what is due.
	AskedAt time.Time `db:"asked_at"`
}

// situationSQL reads email_outbox, email_logs, companies and dispatch_lanes by
// primary key, in one snapshot, and locks nothing.
const situationSQL = `
SELECT ` + emailColumns + `,
       c.name AS company_name, c.suspended_at, c.suspended_reason, l.last_event,
       lane.queue, lane.paused_at, lane.parked_until, o.delivery, o.enqueued_at, o.lease_until, o.processed_at, now() AS asked_at
FROM (SELECT * FROM email_outbox WHERE id = $1 AND target = 'email:send') o
FULL JOIN (SELECT * FROM email_logs WHERE outbox_id = $1) l ON l.outbox_id = o.id
JOIN companies c ON c.id = coalesce(o.company_id, l.company_id)
LEFT JOIN dispatch_lanes lane ON lane.id = o.lane_id`

// FindSituation returns an email of any company, or ErrNotFound. It is for
// operators: a tenant's question goes through FindEmail.
func (s *Store) FindSituation(ctx context.Context, id uuid.UUID) (Situation, error) {
	var found Situation
	if err := s.db.GetContext(ctx, &found, situationSQL, id); err != nil {
		return Situation{}, fmt.Errorf("find email: %w", translate(err))
	}
	return found, nil
}
