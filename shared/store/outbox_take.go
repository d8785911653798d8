package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
)

// Batch is what a dispatcher took from the outbox in one commit, in the order in which the
// rows were due.
type Batch struct {
	Rows []DueRow
	// TakenAt is the rows' enqueued_at. Release changes only rows that still carry it, so a
	// dispatcher that was frozen cannot undo what happened to them meanwhile.
	TakenAt time.Time
}

// Slot is one of the batches that a dispatcher has under way at the same time.
type Slot struct {
	ID uuid.UUID
	// Published is the TakenAt of the slot's last batch, whose tasks have all been published
	// or released; zero = there was none.
	Published time.Time
}

// dueInLanesSQL finds at most $2 due rows in each of the lanes $1 along
// email_outbox_lane_claim and locks them. Rows that another transaction has locked are left out.
const dueInLanesSQL = `
WITH due AS MATERIALIZED (
    SELECT due.* FROM unnest($1::bigint[]) AS lane(id)
    CROSS JOIN LATERAL (
        SELECT o.id, o.next_at, o.status = 'RETRY_SCHEDULED' AND o.enqueued_at IS NOT NULL AS had_task FROM email_outbox o
        WHERE o.lane_id = lane.id AND ` + dueSQL + `
        ORDER BY o.next_at, o.id LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) due
)`

// takeDueSQL marks its rows as ENQUEUED, by primary key. The batch is written down in the
// same commit, in place of the slot's last one (dispatch_batches_pkey).
const takeDueSQL = dueInLanesSQL + `, batch AS (
    INSERT INTO dispatch_batches (slot, taken_at) SELECT $3, now() WHERE EXISTS (SELECT FROM due)
), published AS (
    DELETE FROM dispatch_batches WHERE slot = $3 AND taken_at = $4
)
UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = ANY (ARRAY(SELECT id FROM due))
RETURNING id, lane_id, payload, attempts, throttles, next_at, enqueued_at,
          id = ANY (ARRAY(SELECT id FROM due WHERE had_task)) AS had_task`

// takeProbeSQL is takeDueSQL for one row, found by primary key.
const takeProbeSQL = `
WITH due AS MATERIALIZED (
    SELECT o.id, o.status = 'RETRY_SCHEDULED' AND o.enqueued_at IS NOT NULL AS had_task FROM email_outbox o
    WHERE o.id = $1 AND o.target = 'email:send' AND ` + dueSQL + `
    FOR UPDATE SKIP LOCKED
), batch AS (
    INSERT INTO dispatch_batches (slot, taken_at) SELECT $2, now() WHERE EXISTS (SELECT FROM due)
)
UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = ANY (ARRAY(SELECT id FROM due))
RETURNING id, lane_id, payload, attempts, throttles, next_at, enqueued_at, EXISTS (SELECT FROM due WHERE had_task) AS had_task`

// TakeDue takes at most perLane due emails from each lane: they are ENQUEUED when it
// returns, and the caller then publishes their tasks or releases them. A caller that dies in
// between leaves emails without a task, which the rescuer finds. After an error the emails
// may have been taken or not.
func (s *Store) TakeDue(ctx context.Context, slot Slot, lanes []int64, perLane int) (Batch, error) {
	return s.take(ctx, takeDueSQL, pq.Array(lanes), perLane, slot.ID, slot.Published)
}

// TakeProbe is TakeDue for the one email that may pass the provider's closed gate. The batch
// is empty if the email is not due any more, or another transaction has locked it. The caller then
// calls ForgetBatch, since probes are rare.
func (s *Store) TakeProbe(ctx context.Context, slot Slot, id uuid.UUID) (Batch, error) {
	return s.take(ctx, takeProbeSQL, id, slot.ID)
}

func (s *Store) take(ctx context.Context, statement string, args ...any) (Batch, error) {
	var b Batch
	if err := s.db.SelectContext(ctx, &b.Rows, statement, args...); err != nil {
		return Batch{}, fmt.Errorf("take due rows: %w", translate(err))
	}
	if len(b.Rows) > 0 {
		b.TakenAt = b.Rows[0].TakenAt
	}
	slices.SortFunc(b.Rows, func(a, b DueRow) int {
		return cmp.Or(a.NextAt.Compare(b.NextAt), slices.Compare(a.ID[:], b.ID[:]))
	})
	return b, nil
}

// forgetBatchSQL deletes one row by primary key.
const forgetBatchSQL = `DELETE FROM dispatch_batches WHERE slot = $1 AND taken_at = $2`

// ForgetBatch says that the slot's last batch was published, where no next one does so.
func (s *Store) ForgetBatch(ctx context.Context, slot Slot) error {
	if _, err := s.exec(ctx, forgetBatchSQL, slot.ID, slot.Published); err != nil {
		return fmt.Errorf("forget batch: %w", err)
	}
	return nil
}

// leaseJobsSQL marks the rows it finds as being published: they are not due again for 8 s,
// which is longer than a dispatcher's batch takes, and leaves time to be on the queue within 10 s. It returns when they were due.
const leaseJobsSQL = dueInLanesSQL + `
UPDATE email_outbox o SET next_at = now() + interval '8 s', enqueued_at = now() FROM due WHERE o.id = due.id
RETURNING o.id, o.lane_id, o.payload, o.attempts, o.throttles, due.next_at, o.enqueued_at, false AS had_task`

// LeaseJobs takes at most perLane due jobs of bulk work from each lane, for 8 s. The caller
// publishes them and calls MarkPublished when the broker has confirmed. Jobs whose lease ends
// before that are taken again: consumers are idempotent.
func (s *Store) LeaseJobs(ctx context.Context, lanes []int64, perLane int) (Batch, error) {
	return s.take(ctx, leaseJobsSQL, pq.Array(lanes), perLane)
}

// markPublishedSQL finds its rows by primary key. A row that another transaction has locked is
// left out: its job is published again when the lease ends.
const markPublishedSQL = `
UPDATE email_outbox SET status = 'PUBLISHED', processed_at = now()
WHERE id IN (SELECT id FROM email_outbox WHERE id = ANY ($1::uuid[]) AND status = 'PENDING' FOR UPDATE SKIP LOCKED)`

// MarkPublished ends jobs that the broker has confirmed.
func (s *Store) MarkPublished(ctx context.Context, ids []uuid.UUID) error {
	if _, err := s.exec(ctx, markPublishedSQL, uuidArray(ids)); err != nil {
		return fmt.Errorf("mark jobs published: %w", err)
	}
	return nil
}

// Release is a row to be released.
type Release struct {
	ID uuid.UUID
	// Delay is how long the dispatcher leaves the row alone; with 0 it is due as before.
	Delay time.Duration
	// NextAt is when a job was due before it was leased. An email's row still says so.
	NextAt time.Time
}

// releaseSQL changes rows by primary key that are still as the batch left them. A row that
// another transaction has locked is left out and counted.
const releaseSQL = `
WITH taken AS MATERIALIZED (
    SELECT r.*, o.target FROM unnest($1::uuid[], $2::bigint[], $4::bigint[]) AS r(id, delay_ms, due_us)
    JOIN email_outbox o ON o.id = r.id
    WHERE o.status = CASE o.target WHEN 'email:send' THEN 'ENQUEUED' ELSE 'PENDING' END AND o.enqueued_at = $3
), free AS MATERIALIZED (
    SELECT t.* FROM taken t JOIN email_outbox o ON o.id = t.id
    WHERE o.status IN ('ENQUEUED', 'PENDING') AND o.enqueued_at = $3
    FOR UPDATE OF o SKIP LOCKED
), released AS (
    UPDATE email_outbox o SET status = 'PENDING', enqueued_at = NULL,
        next_at = CASE WHEN f.delay_ms > 0 THEN now() + f.delay_ms * interval '1 ms'
                       WHEN f.target = 'email:send' THEN o.next_at
                       ELSE timestamptz 'epoch' + f.due_us * interval '1 microsecond' END
    FROM free f WHERE o.id = f.id AND o.status = CASE o.target WHEN 'email:send' THEN 'ENQUEUED' ELSE 'PENDING' END
    RETURNING o.id
)
SELECT (SELECT count(*) FROM taken) - (SELECT count(*) FROM free)`

// Release returns rows of a batch to the outbox. Rows that have moved on stay as they are.
// left is how many another transaction has locked: they still count on a task.
func (s *Store) Release(ctx context.Context, takenAt time.Time, rows []Release) (left int, err error) {
	ids := uuids(rows, func(r *Release) uuid.UUID { return r.ID })
	delays := bigints(rows, func(r *Release) int64 { return r.Delay.Milliseconds() })
	due := bigints(rows, func(r *Release) int64 { return r.NextAt.UnixMicro() })
	err = write(func(args []any) error { return s.db.GetContext(ctx, &left, releaseSQL, args...) }, ids, delays, takenAt, due)
	if err != nil {
		return 0, fmt.Errorf("release rows: %w", err)
	}
	return left, nil
}

// dropTaskSQL changes one row by primary key, unless another transaction has locked it.
const dropTaskSQL = `
WITH found AS MATERIALIZED (
    SELECT id FROM email_outbox
    WHERE id = $1 AND (status = 'ENQUEUED' OR status = 'RETRY_SCHEDULED' AND enqueued_at IS NOT NULL)
    FOR UPDATE SKIP LOCKED
), dropped AS (
    UPDATE email_outbox SET enqueued_at = NULL, status = CASE status WHEN 'ENQUEUED' THEN 'PENDING' ELSE status END,
        next_at = CASE WHEN $2 > 0 THEN greatest(next_at, now() + $2 * interval '1 ms') ELSE next_at END
    WHERE id = ANY (ARRAY(SELECT id FROM found))
)
SELECT NOT EXISTS (SELECT FROM found) AND EXISTS (
    SELECT FROM email_outbox WHERE id = $1 AND (status = 'ENQUEUED' OR status = 'RETRY_SCHEDULED' AND enqueued_at IS NOT NULL))`

// DropTask records that the email's task is acknowledged without having done anything: the
// dispatcher acts when the email is due, and not before delay has passed. locked says that another transaction has locked the
// row, which then still counts on its task.
func (s *Store) DropTask(ctx context.Context, id uuid.UUID, delay time.Duration) (locked bool, err error) {
	err = write(func(args []any) error { return s.db.GetContext(ctx, &locked, dropTaskSQL, args...) }, id, delay.Milliseconds())
	if err != nil {
		return false, fmt.Errorf("drop task: %w", err)
	}
	return locked, nil
}
