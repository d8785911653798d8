package emails

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
)

// Diagnosis is an email with everything that decides whether and when it is sent. `gatewayctl email explain` shows it.
type Diagnosis struct {
	Email
	CompanyName     string     `db:"company_name"`
	SuspendedAt     *time.Time `db:"suspended_at"`
	SuspendedReason *string    `db:"suspended_reason"`
	// MailingsPausedAt is when the reputation guard paused the company's mailings; nil if the email belongs to no
	// mailing.
	MailingsPausedAt *time.Time `db:"mailings_paused_at"`
	// LastEvent is the newest event of the email; nil if there is none.
	LastEvent *email.EventType `db:"last_event"`

	// The following fields come from the outbox row and its lane, and are nil once the row is purged.
	Queue       *string       `db:"queue"`
	LaneMailing uuid.NullUUID `db:"lane_mailing"` // the mailing whose lane it is
	PausedAt    *time.Time    `db:"paused_at"`
	ParkedUntil *time.Time    `db:"parked_until"`
	HeldAt      *time.Time    `db:"held_at"` // when an operator held its lane
	HeldReason  *string       `db:"held_reason"`
	EnqueuedAt  *time.Time    `db:"enqueued_at"`
	LeaseUntil  *time.Time    `db:"lease_until"`
	ProcessedAt *time.Time    `db:"processed_at"`
	// ErasedAt is when the body was deleted at the end of its retention; the email cannot be sent again.
	ErasedAt *time.Time `db:"body_erased_at"`

	// BreakerOpenedAt and BreakerReason are set while the circuit breaker is open, BreakerHeldAt and BreakerHeldReason while an
	// operator has stopped all sending.
	BreakerOpenedAt   *time.Time `db:"breaker_opened_at"`
	BreakerReason     *string    `db:"breaker_reason"`
	BreakerHeldAt     *time.Time `db:"breaker_held_at"`
	BreakerHeldReason *string    `db:"breaker_held_reason"`

	// AskedAt is the time of the snapshot by Postgres's clock, which decides what is due.
	AskedAt time.Time `db:"asked_at"`
}

// emailDiagnosisSQL reads email_outbox, email_logs, companies, dispatch_lanes and
// provider_gate by primary key, in one snapshot, and locks nothing.
const emailDiagnosisSQL = `
SELECT ` + emailColumns + `,
       c.name AS company_name, c.suspended_at, c.suspended_reason, CASE WHEN lane.mailing_id IS NOT NULL THEN c.mailings_paused_at END AS mailings_paused_at, l.last_event,
       lane.queue, lane.mailing_id AS lane_mailing, lane.paused_at, lane.parked_until, lane.held_at, lane.held_reason,
       CASE WHEN g.is_open THEN g.since END AS breaker_opened_at, g.reason AS breaker_reason, g.held_at AS breaker_held_at, g.held_reason AS breaker_held_reason,
       o.enqueued_at, o.lease_until, o.processed_at, o.body_erased_at, now() AS asked_at
FROM (SELECT * FROM email_outbox WHERE id = $1 AND target = 'email:send') o
FULL JOIN (SELECT * FROM email_logs WHERE outbox_id = $1) l ON l.outbox_id = o.id
JOIN companies c ON c.id = coalesce(o.company_id, l.company_id)
` + joinAggregate + `
LEFT JOIN dispatch_lanes lane ON lane.id = o.lane_id
LEFT JOIN provider_gate g ON g.id = 1`

// FindEmailDiagnosis returns an email of any company, or pg.ErrNotFound. It is for operators; requests of tenants use
// FindEmail.
func (s *Store) FindEmailDiagnosis(ctx context.Context, id uuid.UUID) (Diagnosis, error) {
	var found Diagnosis
	if err := s.db.GetContext(ctx, &found, emailDiagnosisSQL, id); err != nil {
		return Diagnosis{}, fmt.Errorf("find email: %w", pg.Translate(err))
	}
	return found, nil
}
