package dispatch

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/internal/pg"
)

// WaitingLane is an open lane.
type WaitingLane struct {
	ID        int64     `db:"id"`
	CompanyID uuid.UUID `db:"company_id"`
	Queue     string    `db:"queue"`
	// Wait is the number of seconds until a row is due: 0 or less if one is, +Inf if no row waits.
	Wait float64 `db:"wait"`
	// Since is a lower bound for the next read of the lane: the position of the first row, locked or not, or the time of this
	// read minus 5 s, whichever is earlier. A row that is committed within 5 s of its next_at is not before it.
	Since Position
}

// Position is a position in the order in which the rows of a lane are taken.
type Position struct {
	NextAt time.Time // zero = before all rows
	ID     uuid.UUID
}

// Before reports whether a row at p is taken before one at other.
func (p Position) Before(other Position) bool {
	return cmp.Or(p.NextAt.Compare(other.NextAt), bytes.Compare(p.ID[:], other.ID[:])) < 0
}

// WaitingLanes is the result of a poll or a listing of lanes.
type WaitingLanes struct {
	// BreakerClosed: while the circuit breaker is open no email is taken from any lane.
	BreakerClosed bool
	Lanes         []WaitingLane
}

// Due lists, by queue, the lanes in which a row may be taken now.
func (w WaitingLanes) Due() map[string][]int64 {
	lanes := make(map[string][]int64)
	for _, l := range w.Lanes {
		if l.Wait <= 0 && (w.BreakerClosed || email.QueueWeight(l.Queue) == 0) {
			lanes[l.Queue] = append(lanes[l.Queue], l.ID)
		}
	}
	return lanes
}

// LaneProbe selects one lane.
type LaneProbe struct {
	ID int64
	// Since is a lower bound of the positions of its rows; zero = none is known.
	Since Position
}

// everyLaneSQL jumps from lane to lane along email_outbox_lane_claim, one index probe each, so its cost is the number of lanes
// with waiting rows and not the number of rows.
const everyLaneSQL = `
WITH RECURSIVE jump AS (
    (SELECT lane_id FROM email_outbox
     WHERE status IN ('PENDING', 'RETRY_SCHEDULED') AND lane_id IS NOT NULL
     ORDER BY lane_id LIMIT 1)
    UNION ALL
    SELECT (SELECT o.lane_id FROM email_outbox o
            WHERE o.status IN ('PENDING', 'RETRY_SCHEDULED') AND o.lane_id > jump.lane_id
            ORDER BY o.lane_id LIMIT 1)
    FROM jump WHERE jump.lane_id IS NOT NULL
), lane AS (
    SELECT lane_id AS id, '-infinity'::timestamptz AS since, '` + beforeAllIDs + `'::uuid AS since_id FROM jump WHERE lane_id IS NOT NULL
)`

const (
	// beforeAllIDs sorts before the ids of all rows.
	beforeAllIDs = `00000000-0000-0000-0000-000000000000`
	// newestRows is the maximum number of rows that a search for new rows reads.
	newestRows = 5000
	// clockSkew is how far an id may be ahead of Postgres's clock. A search for new rows ignores greater ids, such as those of
	// an api whose clock is wrong and UUIDv4 ids, so that they do not use up newestRows: a wake-up or a full listing finds
	// them.
	clockSkew = 2 * time.Second
)

// namedLanesParameters are the parameters of named_lanes.sql: how many lanes, and which.
var namedLanesParameters = pg.Parameters[int, LaneProbe]{
	Scalars: []pg.Scalar[int]{pg.One("count", "bigint", func(count int) any { return count })},
	Columns: []pg.Column[LaneProbe]{
		pg.Each("id", "bigint", pg.BigInts, func(l *LaneProbe) int64 { return l.ID }),
		pg.Each("since", "timestamptz", pg.StartTimes, func(l *LaneProbe) time.Time { return l.Since.NextAt }),
		pg.Each("since_id", "uuid", pg.UUIDs, func(l *LaneProbe) uuid.UUID { return l.Since.ID }),
	},
}

// newLanesSQL returns the lanes of the rows whose id was generated in the last $1 ms, found by email_outbox_pkey. $2 is
// clockSkew in ms. It locks nothing.
const newLanesSQL = `
SELECT DISTINCT lane_id FROM (
    SELECT lane_id, status FROM email_outbox
    WHERE id >= first_id_at(now() - $1::bigint * interval '1 ms') AND id < first_id_at(now() + $2::bigint * interval '1 ms')
    ORDER BY id DESC LIMIT $3
) newest
WHERE status = 'PENDING' AND lane_id IS NOT NULL`

// waitSQL finds, for each of the open lanes, the first row along email_outbox_lane_claim and the first row that is or becomes
// due. An open lane without rows has an infinite wait; a closed lane is not returned. A retry with a delayed task on the queue
// is due 5 s late, as in dueSQL: if it is the first row, its lane is read again then. The test for a due row is not an EXISTS,
// because the planner turns that into a join, which may read all index entries of a lane, including dead ones. waitSQL locks
// nothing. A result row without a lane carries only the state of the circuit breaker.
//
// The next read may start 5 s before this one, since a row may be committed later than its next_at: the gateway's statements
// use now() and then wait for locks for at most 4 s (pg.LockWait). A row whose commit takes longer, for example because a
// synchronous standby is slow, is found by the next full listing. With a longer time, every read would pass over that many
// seconds of dead index entries while an old snapshot is open.
const waitSQL = `
SELECT breaker.closed, found.* FROM (SELECT ` + breaker.IsClosedSQL + ` AS closed) breaker
LEFT JOIN (
    SELECT l.id, l.company_id, l.queue, least(earliest.next_at, now() - interval '5 s') AS since,
           CASE WHEN earliest.next_at <= now() - interval '5 s' THEN earliest.id ELSE '` + beforeAllIDs + `' END AS since_id,
           CASE WHEN due.next_at IS NULL AND earliest.late_at IS NULL THEN 'infinity'
                ELSE extract(epoch FROM greatest(least(due.next_at, earliest.late_at), l.parked_until) - now())::float8 END AS wait
    FROM lane
    JOIN dispatch_lanes l ON l.id = lane.id AND CASE WHEN lane.id IS NOT NULL THEN l.paused_at IS NULL AND l.held_at IS NULL END
    JOIN companies c ON c.id = l.company_id
        AND CASE WHEN l.id IS NOT NULL THEN c.suspended_at IS NULL AND (c.mailings_paused_at IS NULL OR l.mailing_id IS NULL) END
    LEFT JOIN LATERAL (
        SELECT o.next_at, o.id, CASE WHEN o.status = 'RETRY_SCHEDULED' AND o.enqueued_at IS NOT NULL AND o.next_at > now() - interval '5 s'
                               THEN o.next_at + interval '5 s' END AS late_at
        FROM email_outbox o
        WHERE o.lane_id = l.id AND o.status IN ('PENDING', 'RETRY_SCHEDULED') AND (o.next_at, o.id) >= (lane.since, lane.since_id)
        ORDER BY o.next_at, o.id LIMIT 1
    ) earliest ON true
    LEFT JOIN LATERAL (
        SELECT o.next_at FROM email_outbox o
        WHERE earliest.id IS NOT NULL
          AND o.lane_id = l.id AND o.status IN ('PENDING', 'RETRY_SCHEDULED') AND (o.next_at, o.id) >= (earliest.next_at, earliest.id)
          AND (o.status = 'PENDING' OR o.enqueued_at IS NULL OR o.next_at <= now() - interval '5 s')
        ORDER BY o.next_at, o.id LIMIT 1
    ) due ON true
) found ON true`

const waitingLanesSQL = everyLaneSQL + waitSQL

// WaitingLanes lists all open lanes in which rows wait, due or not, and reads each from its start.
func (s *Store) WaitingLanes(ctx context.Context) (WaitingLanes, error) {
	return s.look(func(rows any) error { return s.db.SelectContext(ctx, rows, waitingLanesSQL) })
}

// ProbeLanes is WaitingLanes for the given lanes, including open lanes without waiting rows. Lanes that are missing in the
// result are closed.
func (s *Store) ProbeLanes(ctx context.Context, lanes []LaneProbe) (WaitingLanes, error) {
	return s.look(func(rows any) error {
		return s.namedLanes.Select(ctx, rows, namedLanesParameters.Arguments(len(lanes), lanes)...)
	})
}

// NewLanes returns the lanes of rows whose ids were generated within that time.
func (s *Store) NewLanes(ctx context.Context, within time.Duration) ([]int64, error) {
	var lanes []int64
	if err := s.db.SelectContext(ctx, &lanes, newLanesSQL, within.Milliseconds(), clockSkew.Milliseconds(), newestRows); err != nil {
		return nil, fmt.Errorf("search new rows: %w", pg.Translate(err))
	}
	return lanes, nil
}

// look runs a statement with the columns of waitSQL.
func (s *Store) look(run func(rows any) error) (WaitingLanes, error) {
	var rows []struct {
		Closed    bool          `db:"closed"`
		ID        *int64        `db:"id"`
		CompanyID uuid.NullUUID `db:"company_id"`
		Queue     *string       `db:"queue"`
		Wait      *float64      `db:"wait"`
		Since     *time.Time    `db:"since"`
		SinceID   uuid.NullUUID `db:"since_id"`
	}
	if err := run(&rows); err != nil {
		return WaitingLanes{}, fmt.Errorf("look at lanes: %w", pg.Translate(err))
	}
	var found WaitingLanes
	for _, r := range rows {
		found.BreakerClosed = r.Closed
		if r.ID != nil {
			since := Position{NextAt: *r.Since, ID: r.SinceID.UUID}
			found.Lanes = append(found.Lanes, WaitingLane{ID: *r.ID, CompanyID: r.CompanyID.UUID, Queue: *r.Queue, Wait: *r.Wait, Since: since})
		}
	}
	return found, nil
}

// LaneTake is the maximum number of rows that a dispatcher takes from a lane.
type LaneTake struct {
	LaneProbe
	Limit int
}
