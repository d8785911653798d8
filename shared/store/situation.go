package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
)

// Situation is an email with everything else that decides whether and
// when it is sent: for an operator who wants to know why it is not sent yet.
type Situation struct {
	Email
	CompanyName     string     `db:"company_name"`
	SuspendedAt     *time.Time `db:"suspended_at"`
	SuspendedReason *string    `db:"suspended_reason"`
	// MailingsPausedAt is when the reputation guard paused the company's mailings; nil if the email is of
	// no mailing.
	MailingsPausedAt *time.Time `db:"mailings_paused_at"`
	// LastEvent is the newest of its timeline; nil before the first.
	LastEvent *email.EventType `db:"last_event"`

	// The following fields come from the outbox row and its lane, and are nil once the row is purged.
	Queue       *string         `db:"queue"`
	PausedAt    *time.Time      `db:"paused_at"`
	ParkedUntil *time.Time      `db:"parked_until"`
	HeldAt      *time.Time      `db:"held_at"` // its lane, by an operator
	HeldReason  *string         `db:"held_reason"`
	Delivery    *email.Delivery `db:"delivery"`
	EnqueuedAt  *time.Time      `db:"enqueued_at"`
	LeaseUntil  *time.Time      `db:"lease_until"`
	ProcessedAt *time.Time      `db:"processed_at"`
	// ErasedAt is when its body was past its time: it cannot be sent again since.
	ErasedAt *time.Time `db:"body_erased_at"`

	// The circuit breaker: since when and why it is open, nil if it is closed; and an
	// operator's pause.
	GateShutAt     *time.Time `db:"gate_shut_at"`
	GateReason     *string    `db:"gate_reason"`
	GateHeldAt     *time.Time `db:"gate_held_at"`
	GateHeldReason *string    `db:"gate_held_reason"`

	// AskedAt is the moment of all this by Postgres's clock, which alone decides what is due.
	AskedAt time.Time `db:"asked_at"`
}

// situationSQL reads email_outbox, email_logs, companies, dispatch_lanes and
// provider_gate by primary key, in one snapshot, and locks nothing.
const situationSQL = `
SELECT ` + emailColumns + `,
       c.name AS company_name, c.suspended_at, c.suspended_reason, CASE WHEN lane.mailing_id IS NOT NULL THEN c.mailings_paused_at END AS mailings_paused_at, l.last_event,
       lane.queue, lane.paused_at, lane.parked_until, lane.held_at, lane.held_reason,
       CASE WHEN g.state = 'shut' THEN g.since END AS gate_shut_at, g.reason AS gate_reason, g.held_at AS gate_held_at, g.held_reason AS gate_held_reason,
       o.delivery, o.enqueued_at, o.lease_until, o.processed_at, o.body_erased_at, now() AS asked_at
FROM (SELECT * FROM email_outbox WHERE id = $1 AND target = 'email:send') o
FULL JOIN (SELECT * FROM email_logs WHERE outbox_id = $1) l ON l.outbox_id = o.id
JOIN companies c ON c.id = coalesce(o.company_id, l.company_id)
` + joinAggregate + `
LEFT JOIN dispatch_lanes lane ON lane.id = o.lane_id
LEFT JOIN provider_gate g ON g.id = 1`

// FindSituation returns an email of any company, or ErrNotFound. It is for
// operators: a tenant's question goes through FindEmail.
func (s *Store) FindSituation(ctx context.Context, id uuid.UUID) (Situation, error) {
	var found Situation
	if err := s.db.GetContext(ctx, &found, situationSQL, id); err != nil {
		return Situation{}, fmt.Errorf("find email: %w", pg.Translate(err))
	}
	return found, nil
}
