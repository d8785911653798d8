package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
)

// DueRow is an outbox row whose turn it is to go on its queue.
type DueRow struct {
	ID        uuid.UUID       `db:"id"`
	LaneID    int64           `db:"lane_id"`
	Status    email.Status    `db:"status"` // PENDING, or RETRY_SCHEDULED whose task was lost
	Payload   json.RawMessage `db:"payload"`
	Attempts  int             `db:"attempts"`
	Throttles int             `db:"throttles"`
}

// liveLanesSQL jumps from lane to lane along email_outbox_lane_claim, one index
// probe each, so its cost is the number of lanes with waiting rows and not the
// number of rows. It locks nothing. A retry's task waits on the queue; only when
// it is $1 past its time was it lost. While the provider's gate is shut no lane of an
// email queue is live. Whether a row is due is no EXISTS: the planner makes a join of
// that, which may go through all of a lane's rows, dead ones too.
const liveLanesSQL = `
WITH RECURSIVE lane AS (
    (SELECT lane_id FROM email_outbox
     WHERE status IN ('PENDING', 'RETRY_SCHEDULED') AND lane_id IS NOT NULL
     ORDER BY lane_id LIMIT 1)
    UNION ALL
    SELECT (SELECT o.lane_id FROM email_outbox o
            WHERE o.status IN ('PENDING', 'RETRY_SCHEDULED') AND o.lane_id > lane.lane_id
            ORDER BY o.lane_id LIMIT 1)
    FROM lane WHERE lane.lane_id IS NOT NULL
)
SELECT l.queue, l.id FROM lane
JOIN dispatch_lanes l ON l.id = lane.lane_id
JOIN companies c ON c.id = l.company_id
WHERE (l.queue NOT LIKE 'email:send%' OR ` + gateIsOpen + `)
  AND l.paused_at IS NULL AND l.held_at IS NULL AND coalesce(l.parked_until <= now(), true) AND c.suspended_at IS NULL
  AND (SELECT true FROM email_outbox o
       WHERE o.lane_id = lane.lane_id AND o.status IN ('PENDING', 'RETRY_SCHEDULED')
         AND o.next_at <= now() AND o.expires_at > now()
         AND (o.status = 'PENDING' OR o.next_at <= now() - $1 * interval '1 ms')
       ORDER BY o.next_at LIMIT 1)
ORDER BY l.id`

// LiveLanes lists, by queue, the open lanes in which a row is due. lost is how long past
// its time a retry counts as lost.
func (s *Store) LiveLanes(ctx context.Context, lost time.Duration) (map[string][]int64, error) {
	var rows []struct {
		Queue string `db:"queue"`
		ID    int64  `db:"id"`
	}
	if err := s.db.SelectContext(ctx, &rows, liveLanesSQL, lost.Milliseconds()); err != nil {
		return nil, fmt.Errorf("list live lanes: %w", translate(err))
	}
	lanes := make(map[string][]int64)
	for _, row := range rows {
		lanes[row.Queue] = append(lanes[row.Queue], row.ID)
	}
	return lanes, nil
}

// claimDueSQL takes, per lane, the next due rows along email_outbox_lane_claim and
// locks them until the transaction ends; rows that another dispatcher or a worker
// holds are left to it.
const claimDueSQL = `
SELECT due.id, due.lane_id, due.status, due.payload, due.attempts, due.throttles
FROM unnest($1::bigint[]) AS lane(id)
CROSS JOIN LATERAL (
    SELECT o.id, o.lane_id, o.status, o.payload, o.attempts, o.throttles FROM email_outbox o
    WHERE o.lane_id = lane.id AND o.status IN ('PENDING', 'RETRY_SCHEDULED')
      AND o.next_at <= now() AND o.expires_at > now()
      AND (o.status = 'PENDING' OR o.next_at <= now() - $3 * interval '1 ms')
    ORDER BY o.next_at, o.id LIMIT $2
    FOR UPDATE SKIP LOCKED
) due`

// The two ends of a dispatched row, by primary key, on rows this transaction holds. An
// email's way goes on from its queue; a bulk job has reached its end, which is the
// broker's confirmation.
const (
	markEnqueuedSQL = `
UPDATE email_outbox SET enqueued_at = now(),
    status = CASE target WHEN 'email:send' THEN 'ENQUEUED' ELSE 'PUBLISHED' END,
    processed_at = CASE target WHEN 'email:send' THEN processed_at ELSE now() END
WHERE id = ANY ($1::uuid[])`
	postponeSQL = `
UPDATE email_outbox SET status = 'PENDING', next_at = now() + $2 * interval '1 ms' WHERE id = ANY ($1::uuid[])`
)

// Dispatched is what a dispatcher did with the rows it was given.
type Dispatched struct {
	Enqueued []uuid.UUID // a task stands on the queue
	Busy     []uuid.UUID // a task is still being worked on: look again after BusyFor
	BusyFor  time.Duration
}

// DispatchDue takes at most perLane due rows from each lane, hands them to
// enqueue and records what enqueue did, all in one transaction: a crash in the
// middle leaves the rows due, and at worst tasks that stand on the queue already.
// Rows that enqueue does not name stay as they are. It returns how many it took.
func (s *Store) DispatchDue(
	ctx context.Context, lanes []int64, perLane int, lost time.Duration,
	enqueue func(context.Context, []DueRow) (Dispatched, error),
) (taken int, err error) {
	return s.dispatch(ctx, enqueue, claimDueSQL, pq.Array(lanes), perLane, lost.Milliseconds())
}

// claimProbeSQL takes one row by primary key, if it is still due and nobody holds it.
const claimProbeSQL = `
SELECT id, lane_id, status, payload, attempts, throttles FROM email_outbox
WHERE id = $1 AND target = 'email:send' AND status IN ('PENDING', 'RETRY_SCHEDULED') AND next_at <= now() AND expires_at > now()
FOR UPDATE SKIP LOCKED`

// DispatchProbe is DispatchDue for the one email that passes the provider's gate.
func (s *Store) DispatchProbe(
	ctx context.Context, id uuid.UUID, enqueue func(context.Context, []DueRow) (Dispatched, error),
) (taken int, err error) {
	return s.dispatch(ctx, enqueue, claimProbeSQL, id)
}

func (s *Store) dispatch(
	ctx context.Context, enqueue func(context.Context, []DueRow) (Dispatched, error), claimSQL string, args ...any,
) (taken int, err error) {
	err = s.inTx(ctx, func(tx *sqlx.Tx) error {
		var due []DueRow
		err := tx.SelectContext(ctx, &due, claimSQL, args...)
		if err != nil || len(due) == 0 {
			return translate(err)
		}
		taken = len(due)
		crashpoint.At(crashpoint.DispatchLocked)
		done, err := enqueue(ctx, due)
		if err != nil {
			return err // not the database's
		}
		if len(done.Enqueued) > 0 {
			if _, err := tx.ExecContext(ctx, markEnqueuedSQL, uuidArray(done.Enqueued)); err != nil {
				return translate(err)
			}
		}
		if len(done.Busy) > 0 {
			if _, err := tx.ExecContext(ctx, postponeSQL, uuidArray(done.Busy), done.BusyFor.Milliseconds()); err != nil {
				return translate(err)
			}
		}
		crashpoint.At(crashpoint.DispatchMarked)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("dispatch due rows: %w", err)
	}
	if taken > 0 {
		crashpoint.At(crashpoint.DispatchCommitted)
	}
	return taken, nil
}

// returnSQL takes back, by primary key, rows whose task came too early or met a
// closed lane. It touches no row that has moved on since.
const returnSQL = `
UPDATE email_outbox SET status = 'PENDING' WHERE id = $1 AND status = 'ENQUEUED'`

// ReturnToPending gives an ENQUEUED email back to the dispatcher.
func (s *Store) ReturnToPending(ctx context.Context, id uuid.UUID) error {
	if _, err := s.exec(ctx, returnSQL, id); err != nil {
		return fmt.Errorf("return email: %w", err)
	}
	return nil
}

// OverdueEmail is an email whose deadline passed while it waited.
type OverdueEmail struct {
	ID        uuid.UUID `db:"id"`
	ExpiresAt time.Time `db:"expires_at"`
	About     bool      `db:"about"` // something: a program may be changing it
}

// overdueSQL finds by email_outbox_open, a short range of it for each status, and locks
// nothing.
const overdueSQL = `
SELECT due.id, due.expires_at, due.about
FROM unnest('{PENDING,ENQUEUED,RETRY_SCHEDULED}'::text[]) AS waits(status)
CROSS JOIN LATERAL (
    SELECT id, expires_at, aggregate_type IS NOT NULL AS about FROM email_outbox
    WHERE status = waits.status AND status IN ('PENDING', 'ENQUEUED', 'PROCESSING', 'RETRY_SCHEDULED', 'OUTCOME_UNKNOWN')
      AND target = 'email:send' AND expires_at <= now()
    ORDER BY expires_at LIMIT $1
) due
ORDER BY due.expires_at LIMIT $1`

// Overdue lists at most limit overdue emails.
func (s *Store) Overdue(ctx context.Context, limit int) ([]OverdueEmail, error) {
	var overdue []OverdueEmail
	if err := s.db.SelectContext(ctx, &overdue, overdueSQL, limit); err != nil {
		return nil, fmt.Errorf("list overdue emails: %w", translate(err))
	}
	return overdue, nil
}
