package webhook

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/event"
)

// MaxReplays is the maximum number of running replays of one endpoint.
const MaxReplays = 5

const replayColumns = `
id, endpoint_id, company_id, since, until, feed_position, feed_number, last_position, status, done, created_at, finished_at`

const (
	// runningReplaysSQL reads webhook_replays_running.
	runningReplaysSQL = `
SELECT count(*) FROM webhook_replays WHERE endpoint_id = $1 AND company_id = $2 AND status = 'RUNNING' AND id <> $3`

	// createReplaySQL may run twice. A replay of failed deliveries has no last event.
	createReplaySQL = `
INSERT INTO webhook_replays (id, endpoint_id, company_id, since, until, feed_position, last_position)
VALUES ($3, $1, $2, $4, $5, $6, $7)
ON CONFLICT (id) DO NOTHING`

	// findReplaySQL finds by primary key and locks nothing.
	findReplaySQL = `SELECT ` + replayColumns + ` FROM webhook_replays WHERE id = $3 AND endpoint_id = $1 AND company_id = $2`
)

// Ends reports whether no event after the cursor belongs to the replay. The replay's last row of the feed may have more
// events than a page.
func (r Replay) Ends(c Cursor) bool {
	return c.Position > r.LastPosition || c.Position == r.LastPosition && c.Number == wholeRow
}

// wholeRow as the number of a cursor means after all events of its row: see event.At.
const wholeRow = 1 << 62

// recordedLate is how long after it happened an event may be recorded and still be found by its time. The provider
// reports deliveries and bounces late.
const recordedLate = 24 * time.Hour

// CreateReplay stores a replay, which the worker processes. It searches the events of a time range before it locks the
// endpoint.
func (s *Store) CreateReplay(ctx context.Context, r Replay) (Replay, error) {
	var from, to event.Cursor
	if r.Since != nil {
		var err error
		if from, err = s.feed.Before(ctx, r.CompanyID, *r.Since); err == nil {
			to, err = s.feed.After(ctx, r.CompanyID, r.Until.Add(recordedLate))
		}
		if err != nil {
			return Replay{}, fmt.Errorf("create webhook replay: %w", err)
		}
	}
	var made Replay
	err := s.change(ctx, "create webhook replay", r.CompanyID, r.EndpointID, func(tx *sqlx.Tx) error {
		var running int
		if err := tx.GetContext(ctx, &running, runningReplaysSQL, r.EndpointID, r.CompanyID, r.ID); err != nil {
			return err
		}
		if running >= MaxReplays {
			return ErrTooManyReplays
		}
		if _, err := tx.ExecContext(ctx, createReplaySQL, r.EndpointID, r.CompanyID, r.ID, r.Since, r.Until, from.Position, to.Position); err != nil {
			return err
		}
		return tx.GetContext(ctx, &made, findReplaySQL, r.EndpointID, r.CompanyID, r.ID)
	})
	return made, err
}

// FindReplay returns a replay of an endpoint of the company, or pg.ErrNotFound.
func (s *Store) FindReplay(ctx context.Context, company, endpoint, id uuid.UUID) (Replay, error) {
	var r Replay
	if err := s.db.Get(ctx, &r, findReplaySQL, endpoint, company, id); err != nil {
		return Replay{}, fmt.Errorf("find webhook replay: %w", err)
	}
	return r, nil
}

// replayFailedSQL selects failed deliveries along webhook_deliveries_failed and locks them. A delivery behind another
// open one of its email becomes WAITING. Deliveries that fail again have a later updated_at than the replay, so they
// are not selected again.
const replayFailedSQL = `
WITH next AS (
    SELECT d.id, d.email_id, d.position FROM webhook_deliveries d
    WHERE d.endpoint_id = $1 AND d.status = 'FAILED' AND d.position > 0 AND d.updated_at <= $2
    ORDER BY d.position, d.id LIMIT $3 FOR UPDATE
), ranked AS (
    SELECT n.id, row_number() OVER (PARTITION BY coalesce(n.email_id, n.id) ORDER BY n.position, n.id) = 1
        AND NOT EXISTS (SELECT FROM webhook_deliveries o WHERE o.endpoint_id = $1 AND o.email_id = n.email_id AND o.status IN ('RETRYING', 'WAITING')) AS first
    FROM next n
)
UPDATE webhook_deliveries d SET
    status = CASE WHEN r.first THEN 'RETRYING' ELSE 'WAITING' END, next_at = CASE WHEN r.first THEN now() END, scheduled_at = NULL,
    attempts = 0, updated_at = now()
FROM ranked r WHERE d.id = r.id RETURNING d.id`

// ReplayFailed makes the next failed deliveries of a replay due, at most limit, and records the progress. ErrLeaseLost:
// nothing was written.
func (s *SenderStore) ReplayFailed(ctx context.Context, l Lease, r Replay, limit int) (n int, err error) {
	err = inTx(ctx, s.db, func(tx *sqlx.Tx) error {
		var held Endpoint
		if err := tx.GetContext(ctx, &held, lockHeldSQL, l.EndpointID, l.Token); err != nil {
			if isNoRows(err) {
				return ErrLeaseLost
			}
			return err
		}
		var ids []uuid.UUID
		if err := tx.SelectContext(ctx, &ids, replayFailedSQL, l.EndpointID, r.CreatedAt, limit); err != nil {
			return err
		}
		n = len(ids)
		if _, err := tx.ExecContext(ctx, saveReplaySQL, l.EndpointID, r.ID, int64(0), int64(0), n, n < limit); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, dueSQL, held.ID, held.CompanyID, DownFailures, MaxOpen)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("replay failed webhook deliveries: %w", err)
	}
	return n, nil
}
