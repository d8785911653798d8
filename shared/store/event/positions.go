package event

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/sql"
)

// historyBits: position >> historyBits is the number of a position's history. That of the first one is 0, and that of a later one
// the number of seconds from 2026 on to its first position (nextHistory): the same backup may be restored twice. int64 has room
// until 2094.
const historyBits = 32

// nextHistory is the number of a new history: greater than those of all lost positions.
const nextHistory = `greatest((newest >> $2::int) + 1, extract(epoch FROM now() - timestamptz '2026-01-01T00:00:00Z')::bigint)`

// newHistory reports whether the row of event_positions is of another history of the database: positions after newest may
// have been assigned and lost, by a restore to an earlier time or the promotion of a standby that lacked commits. Before
// the first event no position is lost.
const newHistory = `(history IS DISTINCT FROM email_gateway_history() AND (history IS NOT NULL OR newest > 0))`

// waitingSQL reads along event_feed_waiting, starting at the transactions that the last completed round may have
// missed. It ignores from_xid if this cluster has not reached it: a restored database has another transaction counter.
// It locks nothing. ORDER BY makes Postgres use the index: with statistics from a time when many rows had no position,
// the planner would expect to find one soon and scan the whole feed. In an EXISTS it would ignore ORDER BY. Without a
// waiting row it also reports another history, so that the first round of an installation stores it: a backup of that time
// has it.
const waitingSQL = `
SELECT (
    SELECT xid FROM event_feed WHERE position IS NULL AND xid >= (
        SELECT CASE WHEN from_xid <= pg_snapshot_xmax(pg_current_snapshot()) THEN from_xid ELSE '0' END FROM event_positions)
    ORDER BY xid LIMIT 1) IS NOT NULL OR (SELECT history IS DISTINCT FROM email_gateway_history() FROM event_positions)`

// assignSQL gives positions to the visible rows with the smallest ids. It finds them along event_feed_waiting and locks
// them by primary key, if it can lock the only row of event_positions. A process that finds that row locked does
// nothing, since another process runs the round. It is one statement, so a process that is frozen does not hold the
// lock.
//
// Its snapshot may be older than the lock. The UPDATE leaves out rows to which another process has given positions in
// between, because it reads their newest version; the other rows get higher positions. A row that the other process saw
// was visible together with all earlier ones of its email, so the order holds.
//
// If no row is left, all transactions older than the oldest running one are complete, and from_xid moves there.
//
// In another history of the database positions continue with those of nextHistory. A cursor of the lost history then is before
// all rows of the new one, and no reader misses one; and the ids of its events differ from those of lost events.
const assignSQL = `
WITH lead AS MATERIALIZED (
    SELECT CASE WHEN ` + newHistory + ` THEN ` + nextHistory + ` << $2::int ELSE newest END AS newest, email_gateway_history() AS history
    FROM event_positions WHERE singleton FOR NO KEY UPDATE SKIP LOCKED
), waiting AS MATERIALIZED (
    SELECT id, row_number() OVER (ORDER BY id) AS n
    FROM (
        SELECT id FROM event_feed WHERE EXISTS (SELECT FROM lead) AND position IS NULL AND xid >= (
            SELECT CASE WHEN from_xid <= pg_snapshot_xmax(pg_current_snapshot()) THEN from_xid ELSE '0' END FROM event_positions)
        ORDER BY id LIMIT $1
    ) first
), positioned AS (
    UPDATE event_feed f SET position = lead.newest + w.n FROM waiting w, lead WHERE f.id = w.id AND f.position IS NULL RETURNING f.id
), moved AS (
    UPDATE event_positions SET newest = (SELECT newest FROM lead) + (SELECT count(*) FROM waiting), history = (SELECT history FROM lead), updated_at = now(),
        from_xid = CASE WHEN (SELECT count(*) FROM waiting) < $1 THEN pg_snapshot_xmin(pg_current_snapshot()) ELSE from_xid END
    WHERE singleton AND EXISTS (SELECT FROM lead)
)
SELECT count(*) FROM positioned`

// AssignPositions assigns positions to committed rows of the feed, at most limit, in one commit. It returns how many; 0
// also if another process is assigning positions.
func (s *Store) AssignPositions(ctx context.Context, limit int) (assigned int, err error) {
	var waiting bool
	if err := s.db.Get(ctx, &waiting, waitingSQL); err != nil || !waiting {
		return 0, pg.Wrap("look for events without a position", err)
	}
	err = pg.Write(func(args []any) error { return s.db.GetContext(ctx, &assigned, assignSQL, args...) }, limit, historyBits)
	return assigned, pg.Wrap("assign positions to events", err)
}

// lagSQL reads the oldest row without a position along event_feed_waiting. It locks nothing.
const lagSQL = `
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(created_at)) * 1000, 0)::bigint
FROM event_feed WHERE position IS NULL AND xid >= (
    SELECT CASE WHEN from_xid <= pg_snapshot_xmax(pg_current_snapshot()) THEN from_xid ELSE '0' END FROM event_positions)`

// Lag returns the age of the oldest committed event without a position, or 0 if there is none.
func (s *Store) Lag(ctx context.Context) (time.Duration, error) {
	var ms int64
	if err := s.db.Get(ctx, &ms, lagSQL); err != nil {
		return 0, fmt.Errorf("read the lag of the event feed: %w", err)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// readTo is a company with the position of its cursor.
type readTo struct {
	company  uuid.UUID
	position int64
}

// withEventsParameters are the parameters of with_events.sql.
var withEventsParameters = pg.Parameters[struct{}, readTo]{
	Columns: []pg.Column[readTo]{
		pg.Each("id", "uuid", pg.UUIDs, func(r *readTo) uuid.UUID { return r.company }),
		pg.Each("position", "bigint", pg.BigInts, func(r *readTo) int64 { return r.position }),
	},
}

// WithEvents returns the companies that have events after the row of their cursor.
func (s *Store) WithEvents(ctx context.Context, after map[uuid.UUID]Cursor) ([]uuid.UUID, error) {
	rows := make([]readTo, 0, len(after))
	for company, cursor := range after {
		rows = append(rows, readTo{company, cursor.Position})
	}
	var found []uuid.UUID
	if err := s.db.Select(ctx, &found, sql.WithEvents, withEventsParameters.Arguments(struct{}{}, rows)...); err != nil {
		return nil, fmt.Errorf("look for companies with new events: %w", err)
	}
	return found, nil
}

// purgeSQL deletes along the primary key, which sorts by time, and stores the highest deleted position. If a process is
// assigning positions, purgeSQL waits for it, some milliseconds.
const purgeSQL = `
WITH old AS (
    DELETE FROM event_feed WHERE position IS NOT NULL AND created_at < now() - $1 * interval '1 ms'
      AND id IN (SELECT id FROM event_feed ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)
    RETURNING position
), moved AS (
    UPDATE event_positions SET deleted = greatest(deleted, (SELECT max(position) FROM old)) WHERE singleton AND EXISTS (SELECT FROM old)
)
SELECT count(*) FROM old`

// Purge deletes rows of the feed that are older than age, at most limit, and returns how many. It also deletes
// company_events of that age.
func (s *Store) Purge(ctx context.Context, age time.Duration, limit int) (int, error) {
	if _, err := s.db.Exec(ctx, purgeCompanySQL, age.Milliseconds(), limit); err != nil {
		return 0, fmt.Errorf("delete old events of companies: %w", err)
	}
	var deleted int
	err := pg.Write(func(args []any) error { return s.db.GetContext(ctx, &deleted, purgeSQL, args...) }, age.Milliseconds(), limit)
	return deleted, pg.Wrap("delete old events from the feed", err)
}
