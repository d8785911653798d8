package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/sql"
)

// Batch has the rows that a dispatcher took from the outbox in one commit, in the order in which they were due.
type Batch struct {
	Rows []DueRow
	// TakenAt is the enqueued_at of the rows. Release changes only rows that still have it, so a dispatcher that was frozen
	// cannot undo later changes.
	TakenAt time.Time
}

// Slot is one of the batches that a dispatcher processes concurrently.
type Slot struct {
	ID uuid.UUID
	// Published is the TakenAt of the slot's last batch, if all its tasks have been published or released; otherwise zero.
	Published time.Time
}

// hadTaskSQL is the condition under which a delayed task on the queue should have run row o. A task that its worker dropped
// (dropped_tasks_pkey) does not count.
const hadTaskSQL = `o.status = 'RETRY_SCHEDULED' AND o.enqueued_at IS NOT NULL
                   AND NOT EXISTS (SELECT FROM dropped_tasks d WHERE d.enqueued_at = o.enqueued_at AND d.outbox_id = o.id)`

// takeScalars are the scalar parameters of take_due.sql and lease_jobs.sql.
type takeScalars struct {
	count int // of the lanes
	slot  Slot
}

// leaseJobsParameters are the parameters of lease_jobs.sql.
var leaseJobsParameters = pg.Parameters[takeScalars, LaneTake]{
	Scalars: []pg.Scalar[takeScalars]{pg.One("count", "bigint", func(s takeScalars) any { return s.count })},
	Columns: []pg.Column[LaneTake]{
		pg.Each("id", "bigint", pg.BigInts, func(l *LaneTake) int64 { return l.ID }),
		pg.Each("since", "timestamptz", pg.StartTimes, func(l *LaneTake) time.Time { return l.Since.NextAt }),
		pg.Each("since_id", "uuid", pg.UUIDs, func(l *LaneTake) uuid.UUID { return l.Since.ID }),
		pg.Each("row_limit", "bigint", pg.BigInts, func(l *LaneTake) int64 { return int64(l.Limit) }),
	},
}

// takeDueParameters are the parameters of take_due.sql.
var takeDueParameters = pg.Parameters[takeScalars, LaneTake]{
	Scalars: slices.Concat(leaseJobsParameters.Scalars, []pg.Scalar[takeScalars]{
		pg.One("slot_id", "uuid", func(s takeScalars) any { return s.slot.ID }),
		pg.One("published_at", "timestamptz", func(s takeScalars) any { return s.slot.Published }),
	}),
	Columns: leaseJobsParameters.Columns,
}

// takeProbeSQL is take_due.sql for one row, found by primary key. An email past its deadline is no probe: no worker sends it.
const takeProbeSQL = `
WITH due AS MATERIALIZED (
    SELECT o.id, ` + hadTaskSQL + ` AS had_task FROM email_outbox o
    WHERE o.id = $1 AND o.target = 'email:send' AND o.expires_at > now() AND ` + dueSQL + `
    FOR UPDATE SKIP LOCKED
), batch AS (
    INSERT INTO dispatch_batches (slot, taken_at) SELECT $2, now() WHERE EXISTS (SELECT FROM due)
)
UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = ANY (ARRAY(SELECT id FROM due))
RETURNING id, lane_id, payload, attempts, throttles, next_at, enqueued_at, EXISTS (SELECT FROM due WHERE had_task) AS had_task`

// TakeDue takes due emails from lanes. They are ENQUEUED when it returns, and the caller then publishes their tasks or releases
// them. If the caller dies before that, the rescuer finds the emails without a task. After an error the emails may or may not
// have been taken.
func (s *Store) TakeDue(ctx context.Context, slot Slot, takes []LaneTake) (Batch, error) {
	return s.take(func(rows any) error {
		return s.takeDue.Select(ctx, rows, takeDueParameters.Arguments(takeScalars{len(takes), slot}, takes)...)
	})
}

// TakeProbe is TakeDue for the one email that is sent while the circuit breaker is open. The batch is empty if the email is not
// due any more, or if another transaction has locked it. After publishing, the caller calls ForgetBatch: the next probe, whose
// batch would record that this one was published, may be far in the future.
func (s *Store) TakeProbe(ctx context.Context, slot Slot, id uuid.UUID) (Batch, error) {
	return s.take(func(rows any) error { return s.db.SelectContext(ctx, rows, takeProbeSQL, id, slot.ID) })
}

// take runs a statement that returns the columns of DueRow.
func (s *Store) take(run func(rows any) error) (Batch, error) {
	var b Batch
	if err := run(&b.Rows); err != nil {
		return Batch{}, fmt.Errorf("take due rows: %w", pg.Translate(err))
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

// ForgetBatch records that the slot's last batch was published, if no next batch does so.
func (s *Store) ForgetBatch(ctx context.Context, slot Slot) error {
	if _, err := s.db.Exec(ctx, forgetBatchSQL, slot.ID, slot.Published); err != nil {
		return fmt.Errorf("forget batch: %w", err)
	}
	return nil
}

// leaseSQL is how long a job is not due after a dispatcher has taken it. That is longer than a dispatcher needs for a batch, and
// short enough that a job whose dispatcher died is on its queue within 10 s.
const leaseSQL = `interval '8 s'`

// LeaseJobs takes due bulk jobs from lanes, for 8 s. The caller publishes them, and calls MarkPublished when the broker has
// confirmed them. Jobs whose lease ends before that are taken again: consumers are idempotent.
func (s *Store) LeaseJobs(ctx context.Context, takes []LaneTake) (Batch, error) {
	return s.take(func(rows any) error {
		return s.db.SelectContext(ctx, rows, sql.LeaseJobs, leaseJobsParameters.Arguments(takeScalars{count: len(takes)}, takes)...)
	})
}

// markPublishedSQL finds rows by primary key. It skips a row that another transaction has locked: that job is published again
// when its lease ends.
const markPublishedSQL = `
UPDATE email_outbox SET status = 'PUBLISHED', processed_at = now(), due_at = NULL
WHERE id IN (SELECT id FROM email_outbox WHERE id = ANY ($1::uuid[]) AND status = 'PENDING' FOR UPDATE SKIP LOCKED)`

// MarkPublished marks jobs that the broker has confirmed as PUBLISHED.
func (s *Store) MarkPublished(ctx context.Context, ids []uuid.UUID) error {
	if _, err := s.db.Exec(ctx, markPublishedSQL, pg.UUIDArray(ids)); err != nil {
		return fmt.Errorf("mark jobs published: %w", err)
	}
	return nil
}

// Release is a row to release.
type Release struct {
	ID uuid.UUID
	// Delay is the time from the release until the row is due; with 0 it is due at the next_at that it had before the batch.
	Delay time.Duration
	// NextAt is the next_at of a job before its lease. Emails keep their next_at, so it is not used for them.
	NextAt time.Time
}

// releaseParameters are the parameters of release.sql: the TakenAt of the batch, and the rows.
var releaseParameters = pg.Parameters[time.Time, Release]{
	Scalars: []pg.Scalar[time.Time]{pg.One("taken_at", "timestamptz", func(takenAt time.Time) any { return takenAt })},
	Columns: []pg.Column[Release]{
		pg.Each("id", "uuid", pg.UUIDs, func(r *Release) uuid.UUID { return r.ID }),
		pg.Each("delay_ms", "bigint", pg.BigInts, func(r *Release) int64 { return r.Delay.Milliseconds() }),
		pg.Each("due_us", "bigint", pg.BigInts, func(r *Release) int64 { return r.NextAt.UnixMicro() }),
	},
}

// Release returns rows of a batch to the outbox. It does not change rows that have changed since they were taken. left is the
// number of rows that another transaction has locked: Release leaves them as they are, although they may have no task.
func (s *Store) Release(ctx context.Context, takenAt time.Time, rows []Release) (left int, err error) {
	err = pg.Write(func(args []any) error { return s.db.GetContext(ctx, &left, sql.Release, args...) }, releaseParameters.Arguments(takenAt, rows)...)
	if err != nil {
		return 0, fmt.Errorf("release rows: %w", err)
	}
	return left, nil
}

// stillTakenSQL finds rows by primary key and locks nothing.
const stillTakenSQL = `
SELECT count(*) FROM email_outbox WHERE id = ANY ($1::uuid[]) AND status IN ('ENQUEUED', 'PROCESSING') AND enqueued_at = $2`

// StillTaken counts the emails of a batch that no worker has finished since they were taken: they are ENQUEUED or PROCESSING,
// and their task was not dropped.
func (s *Store) StillTaken(ctx context.Context, takenAt time.Time, ids []uuid.UUID) (n int, err error) {
	if err := s.db.GetContext(ctx, &n, stillTakenSQL, pg.UUIDArray(ids), takenAt); err != nil {
		return 0, fmt.Errorf("count emails still taken: %w", pg.Translate(err))
	}
	return n, nil
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
    RETURNING lane_id, next_at
)
SELECT NOT EXISTS (SELECT FROM found) AND EXISTS (
           SELECT FROM email_outbox WHERE id = $1 AND (status = 'ENQUEUED' OR status = 'RETRY_SCHEDULED' AND enqueued_at IS NOT NULL)) AS locked,
       due.lane_id, due.next_at
FROM (SELECT) one LEFT JOIN (SELECT * FROM dropped WHERE next_at <= now()) due ON true`

// DropTask records that the email's task is acknowledged without an attempt: the dispatcher enqueues the email again when it is
// due, and not before delay has passed. If the email is due already, DropTask wakes the dispatchers, because their next read of
// its lane may start after its next_at.
//
// locked means that another transaction has locked the row, which then still relies on its task: the caller must keep the task
// or call NoteDroppedTask.
func (s *Store) DropTask(ctx context.Context, id uuid.UUID, delay time.Duration) (locked bool, err error) {
	var dropped struct {
		Locked bool       `db:"locked"`
		LaneID *int64     `db:"lane_id"`
		NextAt *time.Time `db:"next_at"`
	}
	err = pg.Write(func(args []any) error { return s.db.GetContext(ctx, &dropped, dropTaskSQL, args...) }, id, delay.Milliseconds())
	if err != nil {
		return false, fmt.Errorf("drop task: %w", err)
	}
	if dropped.LaneID != nil {
		_ = s.wake(ctx, []lane.Named{{ID: *dropped.LaneID, From: *dropped.NextAt}}) // else the next full listing finds the email
	}
	return dropped.Locked, nil
}

// noteDroppedTaskSQL reads the last committed version of one row by primary key, and locks nothing.
const noteDroppedTaskSQL = `
INSERT INTO dropped_tasks (outbox_id, enqueued_at)
SELECT id, enqueued_at FROM email_outbox
WHERE id = $1 AND status IN ('ENQUEUED', 'RETRY_SCHEDULED') AND enqueued_at IS NOT NULL
ON CONFLICT DO NOTHING`

// NoteDroppedTask records, before a task is acknowledged, that the email's row was locked and still relies on the task. The
// email is then returned to the dispatcher like others without a task, but the task is not counted as lost.
func (s *Store) NoteDroppedTask(ctx context.Context, id uuid.UUID) error {
	if _, err := s.db.Exec(ctx, noteDroppedTaskSQL, id); err != nil {
		return fmt.Errorf("note dropped task: %w", err)
	}
	return nil
}
