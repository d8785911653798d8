package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/lane"
)

// UnknownOutcome is an email whose last attempt has an unknown outcome.
type UnknownOutcome struct {
	ID        uuid.UUID      `db:"id"`
	LaneID    int64          `db:"lane_id"`
	Token     uuid.UUID      `db:"claim_token"`
	Attempts  int            `db:"attempts"`
	Throttles int            `db:"throttles"`
	Delivery  email.Delivery `db:"delivery"`

	// Category and OriginalCode describe the cause: the category of the failed call, and the provider's code or, without one,
	// the gateway's. Both are empty for an abandoned claim, because no call was recorded.
	Category     string `db:"-"`
	OriginalCode string `db:"-"`
	// InOutage: the call failed because of an outage of the provider, and its try does not count.
	InOutage bool `db:"-"`
}

// abandonedSQL reads along email_outbox_open the emails in PROCESSING with a deadline from $3 on, which are at most as many as
// the workers' concurrency, and locks nothing. It returns those whose lease has ended, followed by the one with the earliest
// deadline.
const abandonedSQL = `
WITH claimed AS MATERIALIZED (
    SELECT id, lane_id, claim_token, attempts, throttles, delivery, expires_at,
           coalesce(lease_until NOT BETWEEN now() - $1 * interval '1 ms' AND ` + pg.FarthestLeaseSQL + `, false) AS due
    FROM email_outbox
    WHERE status = 'PROCESSING' AND target = 'email:send' AND expires_at >= $3
), earliest AS (
    SELECT id, expires_at FROM claimed ORDER BY expires_at LIMIT 1
)
SELECT c.id, c.lane_id, c.claim_token, c.attempts, c.throttles, c.delivery, c.due, e.expires_at AS earliest
FROM claimed c, earliest e
WHERE c.due OR c.id = e.id
ORDER BY c.due DESC LIMIT $2`

// AbandonedClaims lists at most limit emails whose lease ended longer ago than grace, or is longer than any can be,
// because their worker has died or does not respond. It reads only claimed emails with a deadline from since on, and
// returns their earliest deadline, zero if there are none.
func (s *Store) AbandonedClaims(ctx context.Context, grace time.Duration, limit int, since time.Time) (found []UnknownOutcome, earliest time.Time, err error) {
	var claimed []struct {
		UnknownOutcome
		Due      bool      `db:"due"`
		Earliest time.Time `db:"earliest"`
	}
	if err := s.db.SelectContext(ctx, &claimed, abandonedSQL, grace.Milliseconds(), limit, since); err != nil {
		return nil, time.Time{}, fmt.Errorf("list abandoned claims: %w", pg.Translate(err))
	}
	for _, c := range claimed {
		if earliest = c.Earliest; c.Due {
			found = append(found, c.UnknownOutcome)
		}
	}
	return found, earliest, nil
}

// unresolvedSQL reads a page of the emails in OUTCOME_UNKNOWN along email_outbox_open, by deadline and id, and locks nothing.
// No index of these emails has next_at, and after an outage there are many of them, so it reads due emails and others alike.
const unresolvedSQL = `
SELECT id, lane_id, claim_token, attempts, throttles, delivery, expires_at, next_at <= now() - $4 * interval '1 ms' AS due FROM email_outbox
WHERE status = 'OUTCOME_UNKNOWN' AND target = 'email:send'
  AND expires_at >= $1::timestamptz AND (expires_at, id) > ($1::timestamptz, $2::uuid)
ORDER BY expires_at, id LIMIT $3`

// UnresolvedPlace is the cursor of a scan of the emails in OUTCOME_UNKNOWN; the zero value is the beginning.
type UnresolvedPlace struct {
	ExpiresAt time.Time
	ID        uuid.UUID
}

// UnresolvedOutcomes reads the next emails in OUTCOME_UNKNOWN after the cursor, at most limit, and returns those whose
// wait for the provider's feedback has been over for the time late. next is the cursor for the next call: the beginning
// again when the scan has reached the end.
func (s *Store) UnresolvedOutcomes(ctx context.Context, after UnresolvedPlace, limit int, late time.Duration) (due []UnknownOutcome, next UnresolvedPlace, err error) {
	var page []struct {
		UnknownOutcome
		ExpiresAt time.Time `db:"expires_at"`
		Due       bool      `db:"due"`
	}
	if err := s.db.SelectContext(ctx, &page, unresolvedSQL, after.ExpiresAt, after.ID, limit, late.Milliseconds()); err != nil {
		return nil, after, fmt.Errorf("list unresolved outcomes: %w", pg.Translate(err))
	}
	for _, row := range page {
		if row.Due {
			due = append(due, row.UnknownOutcome)
		}
	}
	if err := s.readCauses(ctx, due); err != nil {
		return nil, after, err
	}
	if len(page) == limit {
		last := page[limit-1]
		next = UnresolvedPlace{ExpiresAt: last.ExpiresAt, ID: last.ID}
	}
	return due, next, nil
}

// LongEnqueued is an email whose task should have been taken long ago.
type LongEnqueued struct {
	ID    uuid.UUID `db:"id"`
	Queue string    `db:"queue"`
}

// longEnqueuedSQL reads the ENQUEUED emails with a deadline from $4 on along email_outbox_open and locks nothing. The windows
// of the queues limit their number. It selects the page by id in a second step: for a single query the planner may choose the
// primary key and read the whole outbox, if its statistics are from a time when many emails were waiting. It returns the page,
// followed by the email with the earliest deadline.
const longEnqueuedSQL = `
WITH waiting AS MATERIALIZED (
    SELECT id, lane_id, expires_at, enqueued_at, coalesce(enqueued_at NOT BETWEEN now() - $1 * interval '1 ms' AND now() + $1 * interval '1 ms', false) AND id > $2 AS due
    FROM email_outbox
    WHERE status = 'ENQUEUED' AND target = 'email:send' AND expires_at >= $4
), earliest AS (
    SELECT id, expires_at, (SELECT coalesce(extract(epoch FROM min(enqueued_at) - now())::float8 * 1000 + $1, 0)::bigint FROM waiting) AS due_in
    FROM waiting ORDER BY expires_at LIMIT 1
)
SELECT w.id, l.queue, w.due, e.expires_at AS earliest, e.due_in
FROM waiting w CROSS JOIN earliest e
JOIN dispatch_lanes l ON l.id = w.lane_id
WHERE w.due OR w.id = e.id
ORDER BY w.due DESC, w.id LIMIT $3`

// Enqueued is what LongEnqueued has found.
type Enqueued struct {
	Long     []LongEnqueued
	Earliest time.Time // the earliest deadline of all emails that were read; zero if there were none
	// DueIn is the time from now for which none of these, and no email that is enqueued from now on, is long enqueued.
	DueIn time.Duration
}

// LongEnqueued lists, by id, at most limit emails that were enqueued longer ago than age and whose ids follow after. It reads
// only ENQUEUED emails with a deadline from since on.
func (s *Store) LongEnqueued(ctx context.Context, age time.Duration, after uuid.UUID, limit int, since time.Time) (Enqueued, error) {
	var waiting []struct {
		LongEnqueued
		Due      bool      `db:"due"`
		Earliest time.Time `db:"earliest"`
		DueIn    int64     `db:"due_in"` // milliseconds
	}
	if err := s.db.SelectContext(ctx, &waiting, longEnqueuedSQL, age.Milliseconds(), after, limit, since); err != nil {
		return Enqueued{}, fmt.Errorf("list emails long enqueued: %w", pg.Translate(err))
	}
	found := Enqueued{DueIn: age}
	for _, w := range waiting {
		found.Earliest, found.DueIn = w.Earliest, min(time.Duration(w.DueIn)*time.Millisecond, age)
		if w.Due {
			found.Long, found.DueIn = append(found.Long, w.LongEnqueued), 0 // also of a row from the future
		}
	}
	return found, nil
}

// stillEnqueuedSQL finds rows by primary key and locks nothing.
const stillEnqueuedSQL = `
SELECT id FROM email_outbox
WHERE id = ANY ($1::uuid[]) AND status = 'ENQUEUED'
  AND enqueued_at NOT BETWEEN now() - $2 * interval '1 ms' AND now() + $2 * interval '1 ms'`

// StillEnqueued returns which of these emails have been on their queue for longer than age, in unspecified order.
func (s *Store) StillEnqueued(ctx context.Context, ids []uuid.UUID, age time.Duration) ([]uuid.UUID, error) {
	var found []uuid.UUID
	if err := s.db.SelectContext(ctx, &found, stillEnqueuedSQL, pg.UUIDArray(ids), age.Milliseconds()); err != nil {
		return nil, fmt.Errorf("list emails still enqueued: %w", pg.Translate(err))
	}
	return found, nil
}

// returnLostSQL finds rows by primary key. It skips an email that was enqueued again after it was listed, and one that another
// transaction has locked. It finds the batch of an email whose task was never published by dispatch_batches_pkey, and the note
// about a task that its worker dropped by dropped_tasks_pkey.
const returnLostSQL = `
WITH lost AS MATERIALIZED (
    SELECT id, enqueued_at, lane_id, next_at FROM email_outbox
    WHERE id = ANY ($1::uuid[]) AND status = 'ENQUEUED'
      AND enqueued_at NOT BETWEEN now() - $2 * interval '1 ms' AND now() + $2 * interval '1 ms'
    FOR UPDATE SKIP LOCKED
), returned AS (
    UPDATE email_outbox SET status = 'PENDING', enqueued_at = NULL WHERE id = ANY (ARRAY(SELECT id FROM lost))
), dropped AS (
    DELETE FROM dropped_tasks d USING lost WHERE d.enqueued_at = lost.enqueued_at AND d.outbox_id = lost.id
    RETURNING d.outbox_id
)
SELECT lost.lane_id, min(lost.next_at) AS next_at, count(*) FILTER (WHERE d.outbox_id IS NULL AND b.taken_at IS NULL) AS lost,
       count(*) FILTER (WHERE d.outbox_id IS NULL AND b.taken_at IS NOT NULL) AS unpublished, count(d.outbox_id) AS dropped
FROM lost
LEFT JOIN dropped d ON d.outbox_id = lost.id
LEFT JOIN (SELECT DISTINCT taken_at FROM dispatch_batches) b ON b.taken_at = lost.enqueued_at
GROUP BY lost.lane_id`

// Returned counts the emails that were returned to the dispatchers because they had no task.
type Returned struct {
	Lost        int `db:"lost"`        // the task was published, and the queue has lost it
	Unpublished int `db:"unpublished"` // their dispatcher stopped before it published them
	Dropped     int `db:"dropped"`     // a worker dropped the task, because the email was locked
}

// All returns the total.
func (r Returned) All() int { return r.Lost + r.Unpublished + r.Dropped }

// ReturnLost returns emails without a task to the dispatchers, and wakes the dispatchers for their lanes. If only the wake-up
// fails, it returns the error and the counts.
func (s *Store) ReturnLost(ctx context.Context, ids []uuid.UUID, age time.Duration) (n Returned, err error) {
	var perLane []struct {
		Returned
		LaneID int64     `db:"lane_id"`
		NextAt time.Time `db:"next_at"`
	}
	err = pg.Write(func(args []any) error {
		perLane = nil
		return s.db.SelectContext(ctx, &perLane, returnLostSQL, args...)
	}, pg.UUIDArray(ids), age.Milliseconds())
	if err != nil {
		return Returned{}, fmt.Errorf("return lost emails: %w", err)
	}
	lanes := make([]lane.Named, len(perLane))
	for i, l := range perLane {
		lanes[i] = lane.Named{ID: l.LaneID, From: l.NextAt}
		n.Lost, n.Unpublished, n.Dropped = n.Lost+l.Lost, n.Unpublished+l.Unpublished, n.Dropped+l.Dropped
	}
	return n, s.wake(ctx, lanes)
}

// cleanBatchesSQL reads dispatch_batches_pkey and dropped_tasks_pkey up to the given time.
const cleanBatchesSQL = `
WITH dropped AS (DELETE FROM dropped_tasks WHERE enqueued_at < now() - $1 * interval '1 ms')
DELETE FROM dispatch_batches WHERE taken_at < now() - $1 * interval '1 ms'`

// CleanBatches deletes batches that no dispatcher has confirmed as published, and notes about dropped tasks, that are older
// than age.
func (s *Store) CleanBatches(ctx context.Context, age time.Duration) error {
	if _, err := s.db.Exec(ctx, cleanBatchesSQL, age.Milliseconds()); err != nil {
		return fmt.Errorf("clean batches: %w", err)
	}
	return nil
}
