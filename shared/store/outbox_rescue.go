package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
)

// UnknownOutcome is an email of whose last attempt nobody knows how it ended.
type UnknownOutcome struct {
	ID        uuid.UUID      `db:"id"`
	Token     uuid.UUID      `db:"claim_token"`
	Attempts  int            `db:"attempts"`
	Throttles int            `db:"throttles"`
	Delivery  email.Delivery `db:"delivery"`
}

// abandonedSQL finds along email_outbox_open the emails in PROCESSING, which are as many
// as the workers have hands, and locks nothing.
const abandonedSQL = `
SELECT id, claim_token, attempts, throttles, delivery FROM email_outbox
WHERE status = 'PROCESSING' AND target = 'email:send' AND lease_until < now() - $1 * interval '1 ms'
LIMIT $2`

// AbandonedClaims lists at most limit emails whose lease ended longer ago than grace:
// their worker is gone, or does not answer any more.
func (s *Store) AbandonedClaims(ctx context.Context, grace time.Duration, limit int) ([]UnknownOutcome, error) {
	var found []UnknownOutcome
	if err := s.db.SelectContext(ctx, &found, abandonedSQL, grace.Milliseconds(), limit); err != nil {
		return nil, fmt.Errorf("list abandoned claims: %w", translate(err))
	}
	return found, nil
}

// unresolvedSQL finds along email_outbox_open the emails in OUTCOME_UNKNOWN, which are
// few, and locks nothing.
const unresolvedSQL = `
SELECT id, claim_token, attempts, throttles, delivery FROM email_outbox
WHERE status = 'OUTCOME_UNKNOWN' AND target = 'email:send' AND next_at <= now()
LIMIT $1`

// UnresolvedOutcomes lists at most limit emails whose time to wait for the provider's
// feedback is over.
func (s *Store) UnresolvedOutcomes(ctx context.Context, limit int) ([]UnknownOutcome, error) {
	var found []UnknownOutcome
	if err := s.db.SelectContext(ctx, &found, unresolvedSQL, limit); err != nil {
		return nil, fmt.Errorf("list unresolved outcomes: %w", translate(err))
	}
	return found, nil
}

// LongEnqueued is an email whose task should have been taken long ago.
type LongEnqueued struct {
	ID    uuid.UUID `db:"id"`
	Queue string    `db:"queue"`
}

// longEnqueuedSQL finds along email_outbox_open the emails in ENQUEUED, which are as many
// as the windows hold, and locks nothing. It goes by id from page to page.
const longEnqueuedSQL = `
SELECT o.id, l.queue FROM email_outbox o
JOIN dispatch_lanes l ON l.id = o.lane_id
WHERE o.status = 'ENQUEUED' AND o.target = 'email:send' AND o.enqueued_at < now() - $1 * interval '1 ms' AND o.id > $2
ORDER BY o.id LIMIT $3`

// LongEnqueued lists at most limit emails that were put on their queue longer ago than
// age, by id, those behind after.
func (s *Store) LongEnqueued(ctx context.Context, age time.Duration, after uuid.UUID, limit int) ([]LongEnqueued, error) {
	var found []LongEnqueued
	if err := s.db.SelectContext(ctx, &found, longEnqueuedSQL, age.Milliseconds(), after, limit); err != nil {
		return nil, fmt.Errorf("list emails long enqueued: %w", translate(err))
	}
	return found, nil
}

// returnLostSQL takes rows back by primary key. One that was put on its queue again
// since it was listed stays there.
const returnLostSQL = `
UPDATE email_outbox SET status = 'PENDING'
WHERE id = ANY ($1::uuid[]) AND status = 'ENQUEUED' AND enqueued_at < now() - $2 * interval '1 ms'`

// ReturnLost gives emails whose task is gone back to the dispatcher, and says how many
// there were.
func (s *Store) ReturnLost(ctx context.Context, ids []uuid.UUID, age time.Duration) (int, error) {
	result, err := s.exec(ctx, returnLostSQL, uuidArray(ids), age.Milliseconds())
	if err != nil {
		return 0, fmt.Errorf("return lost emails: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("return lost emails: %w", err)
	}
	return int(n), nil
}
