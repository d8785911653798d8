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

// Batch is what a dispatcher took from the outbox in one commit, in the order in which the
// rows were due.
type Batch struct {
	Rows []DueRow
	// TakenAt is the rows' enqueued_at. Release changes only rows that still carry it, so a
	// dispatcher that was frozen cannot undo what happened to them meanwhile.
	TakenAt time.Time
}

// Slot is one of the batches that a dispatcher has in flight at the same time.
type Slot struct {
	ID uuid.UUID
	// Published is the TakenAt of the slot's last batch, whose tasks have all been published
	// or released; zero = there was none.
	Published time.Time
}

// hadTaskSQL is the condition under which a task that waited on the queue should have run row o. A
// task that its worker dropped (dropped_tasks_pkey) is not missing.
const hadTaskSQL = `o.status = 'RETRY_SCHEDULED' AND o.enqueued_at IS NOT NULL
                   AND NOT EXISTS (SELECT FROM dropped_tasks d WHERE d.enqueued_at = o.enqueued_at AND d.outbox_id = o.id)`

// dueInLanesSQL finds due rows in each of the lanes $1 along email_outbox_lane_claim, from the lane's position $2, $3 on, at
// most as many as $4 says for the lane, and locks them. $5 is the number of lanes. Rows that another transaction has locked
// are left out.
const dueInLanesSQL = `
WITH due AS MATERIALIZED (
    SELECT due.* FROM (
        SELECT * FROM unnest($1::bigint[], $2::timestamptz[], $3::uuid[], $4::bigint[]) AS lane(id, since, since_id, most) LIMIT $5
    ) lane
    CROSS JOIN LATERAL (
        SELECT o.id, o.next_at, ` + hadTaskSQL + ` AS had_task FROM email_outbox o
        WHERE o.lane_id = lane.id AND (o.next_at, o.id) >= (lane.since, lane.since_id) AND ` + dueSQL + `
        ORDER BY o.next_at, o.id LIMIT lane.most
        FOR UPDATE SKIP LOCKED
    ) due
)`

// takeDueSQL marks its rows as ENQUEUED, by primary key and in its order. The CASE keeps the planner from beginning with
// email_outbox when it has seen a few rows only. The batch is written down in the
// same commit, in place of the slot's last one (dispatch_batches_pkey).
const takeDueSQL = dueInLanesSQL + `, batch AS (
    INSERT INTO dispatch_batches (slot, taken_at) SELECT $6, now() WHERE EXISTS (SELECT FROM due)
), published AS (
    DELETE FROM dispatch_batches WHERE slot = $6 AND taken_at = $7
)
UPDATE email_outbox o SET status = 'ENQUEUED', enqueued_at = now()
FROM (SELECT id, had_task FROM due ORDER BY id) due
WHERE o.id = due.id AND CASE WHEN due.id IS NOT NULL THEN o.target = 'email:send' END
RETURNING o.id, o.lane_id, o.payload, o.attempts, o.throttles, o.next_at, o.enqueued_at, due.had_task`

// takeProbeSQL is takeDueSQL for one row, found by primary key.
const takeProbeSQL = `
WITH due AS MATERIALIZED (
    SELECT o.id, ` + hadTaskSQL + ` AS had_task FROM email_outbox o
    WHERE o.id = $1 AND o.target = 'email:send' AND ` + dueSQL + `
    FOR UPDATE SKIP LOCKED
), batch AS (
    INSERT INTO dispatch_batches (slot, taken_at) SELECT $2, now() WHERE EXISTS (SELECT FROM due)
)
UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = ANY (ARRAY(SELECT id FROM due))
RETURNING id, lane_id, payload, attempts, throttles, next_at, enqueued_at, EXISTS (SELECT FROM due WHERE had_task) AS had_task`

// TakeDue takes due emails from lanes: they are ENQUEUED when it
// returns, and the caller then publishes their tasks or releases them. A caller that dies in
// between leaves emails without a task, which the rescuer finds. After an error the emails
// may have been taken or not.
func (s *Store) TakeDue(ctx context.Context, slot Slot, turns []LaneTurn) (Batch, error) {
	return s.take(func(rows any) error {
		return s.takeDue.Select(ctx, rows, append(turnArrays(turns), slot.ID, slot.Published)...)
	})
}

// TakeProbe is TakeDue for the one email that is sent while the circuit breaker is open. The batch
// is empty if the email is not due any more, or another transaction has locked it. The caller then
// calls ForgetBatch, since probes are rare.
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

// ForgetBatch records that the slot's last batch was published, when no next batch records it.
func (s *Store) ForgetBatch(ctx context.Context, slot Slot) error {
	if _, err := s.db.Exec(ctx, forgetBatchSQL, slot.ID, slot.Published); err != nil {
		return fmt.Errorf("forget batch: %w", err)
	}
	return nil
}

// leaseJobsSQL marks the rows it finds as being published: they are not due again for 8 s,
// which is longer than a dispatcher's batch takes, and leaves time to be on the queue within 10 s. It returns when they were due.
const leaseJobsSQL = dueInLanesSQL + `
UPDATE email_outbox o SET next_at = now() + interval '8 s', enqueued_at = now() FROM due WHERE o.id = due.id
RETURNING o.id, o.lane_id, o.payload, o.attempts, o.throttles, due.next_at, o.enqueued_at, false AS had_task`

// LeaseJobs takes due jobs of bulk work from lanes, for 8 s. The caller
// publishes them and calls MarkPublished when the broker has confirmed. Jobs whose lease ends
// before that are taken again: consumers are idempotent.
func (s *Store) LeaseJobs(ctx context.Context, turns []LaneTurn) (Batch, error) {
	return s.take(func(rows any) error { return s.db.SelectContext(ctx, rows, leaseJobsSQL, turnArrays(turns)...) })
}

// markPublishedSQL finds its rows by primary key. A row that another transaction has locked is
// left out: its job is published again when the lease ends.
const markPublishedSQL = `
UPDATE email_outbox SET status = 'PUBLISHED', processed_at = now()
WHERE id IN (SELECT id FROM email_outbox WHERE id = ANY ($1::uuid[]) AND status = 'PENDING' FOR UPDATE SKIP LOCKED)`

// MarkPublished ends jobs that the broker has confirmed.
func (s *Store) MarkPublished(ctx context.Context, ids []uuid.UUID) error {
	if _, err := s.db.Exec(ctx, markPublishedSQL, pg.UUIDArray(ids)); err != nil {
		return fmt.Errorf("mark jobs published: %w", err)
	}
	return nil
}

// Release is a row to be released.
type Release struct {
	ID uuid.UUID
	// Delay is how long the dispatcher leaves the row alone; with 0 it is due as before.
	Delay time.Duration
	// NextAt is when a job was due before it was leased. The row of an email keeps this time.
	NextAt time.Time
}

// releaseParameters are the parameters of release.sql: when the batch was taken, and its rows.
var releaseParameters = pg.Parameters[time.Time, Release]{
	Scalars: []pg.Scalar[time.Time]{pg.One("taken_at", "timestamptz", func(takenAt time.Time) any { return takenAt })},
	Columns: []pg.Column[Release]{
		pg.Each("id", "uuid", pg.UUIDs, func(r *Release) uuid.UUID { return r.ID }),
		pg.Each("delay_ms", "bigint", pg.BigInts, func(r *Release) int64 { return r.Delay.Milliseconds() }),
		pg.Each("due_us", "bigint", pg.BigInts, func(r *Release) int64 { return r.NextAt.UnixMicro() }),
	},
}

// Release returns rows of a batch to the outbox. Rows that have moved on stay as they are.
// left is how many another transaction has locked: they still count on a task.
func (s *Store) Release(ctx context.Context, takenAt time.Time, rows []Release) (left int, err error) {
	err = pg.Write(func(args []any) error { return s.db.GetContext(ctx, &left, sql.Release, args...) }, releaseParameters.Arguments(takenAt, rows)...)
	if err != nil {
		return 0, fmt.Errorf("release rows: %w", err)
	}
	return left, nil
}

// stillTakenSQL finds its rows by primary key and locks none.
const stillTakenSQL = `
SELECT count(*) FROM email_outbox WHERE id = ANY ($1::uuid[]) AND status IN ('ENQUEUED', 'PROCESSING') AND enqueued_at = $2`

// StillTaken counts the emails that no worker has finished with since they were taken in a batch: they are ENQUEUED, or
// in their attempt, and have not been dropped.
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

// DropTask records that the email's task is acknowledged without having done anything: the
// dispatcher acts when the email is due, and not before delay has passed. If it is due already, DropTask wakes the dispatchers:
// they may not read the email's lane from its next_at on. locked means that
// another transaction has locked the row, which then still relies on its task: the caller keeps
// the task, or calls NoteDroppedTask.
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

// noteDroppedTaskSQL reads one row by primary key as it was last committed, and locks nothing.
const noteDroppedTaskSQL = `
INSERT INTO dropped_tasks (outbox_id, enqueued_at)
SELECT id, enqueued_at FROM email_outbox
WHERE id = $1 AND status IN ('ENQUEUED', 'RETRY_SCHEDULED') AND enqueued_at IS NOT NULL
ON CONFLICT DO NOTHING`

// NoteDroppedTask records, before a task is acknowledged, that the email's row was locked and
// still counts on the task. The row goes back to the dispatcher as any other without a task, and
// no task is counted as lost.
func (s *Store) NoteDroppedTask(ctx context.Context, id uuid.UUID) error {
	if _, err := s.db.Exec(ctx, noteDroppedTaskSQL, id); err != nil {
		return fmt.Errorf("note dropped task: %w", err)
	}
	return nil
}
