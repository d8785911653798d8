package event

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// beforeSQL is a binary search over positions along event_feed_position. It reads one row in each of some 40 steps,
// however many rows the company has. Rows after low were recorded at the given time or later, rows up to low before it.
// It locks nothing.
const beforeSQL = `
WITH RECURSIVE search (low, high) AS (
    SELECT deleted, newest + 1 FROM event_positions
  UNION ALL
    SELECT CASE WHEN f.created_at < $2 THEN f.position ELSE s.low END, CASE WHEN f.created_at < $2 THEN s.high ELSE (s.low + s.high) / 2 END
    FROM search s LEFT JOIN LATERAL (
        SELECT position, created_at FROM event_feed
        WHERE company_id = $1 AND position >= (s.low + s.high) / 2 AND position < s.high ORDER BY position LIMIT 1
    ) f ON true
    WHERE s.high - s.low > 1
)
SELECT low FROM search ORDER BY high - low LIMIT 1`

// maxTransaction is the maximum age of a row of the feed when it gets its position: created_at is the time when its
// transaction began. Transactions of the gateway take a minute at most.
const maxTransaction = time.Hour

// Before returns a cursor before all of the company's events that were recorded at the time or later. Up to an hour of
// earlier events may follow it.
func (s *Store) Before(ctx context.Context, company uuid.UUID, at time.Time) (Cursor, error) {
	var position int64
	if err := s.db.Get(ctx, &position, beforeSQL, company, at.Add(-maxTransaction)); err != nil {
		return Cursor{}, fmt.Errorf("search events by time: %w", err)
	}
	return Behind(position), nil
}

// After returns a cursor after all of the company's events that were recorded before the time. It may also be after
// later events.
func (s *Store) After(ctx context.Context, company uuid.UUID, at time.Time) (Cursor, error) {
	var position int64
	if err := s.db.Get(ctx, &position, beforeSQL, company, at.Add(maxTransaction)); err != nil {
		return Cursor{}, fmt.Errorf("search events by time: %w", err)
	}
	return Behind(position), nil
}
