package webhook

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

const deliveryColumns = `
id, endpoint_id, company_id, event_id, type, position, email_id, status, attempts, next_at,
CASE WHEN greatest(scheduled_at, next_at) > now() THEN greatest(scheduled_at, next_at) END AS scheduled_at, last_attempt_at, last_status, last_error,
last_took_ms, created_at`

// DeliveryFilter selects a page of deliveries.
type DeliveryFilter struct {
	Status DeliveryStatus // "" = all
	Before uuid.UUID      // the last id of the previous page; uuid.Nil = from the newest
	Limit  int
}

const (
	// deliveriesSQL reads along webhook_deliveries_list, newest first, and locks nothing.
	deliveriesSQL = `
SELECT ` + deliveryColumns + ` FROM webhook_deliveries
WHERE endpoint_id = $1 AND company_id = $2 AND id < $3 ORDER BY id DESC LIMIT $4`

	// deliveriesByStatusSQL is the same along webhook_deliveries_status.
	deliveriesByStatusSQL = `
SELECT ` + deliveryColumns + ` FROM webhook_deliveries
WHERE endpoint_id = $1 AND company_id = $2 AND status = $5 AND id < $3 ORDER BY id DESC LIMIT $4`
)

// Deliveries lists stored deliveries of an endpoint of the company, newest first.
func (s *Store) Deliveries(ctx context.Context, company, endpoint uuid.UUID, f DeliveryFilter) ([]Delivery, error) {
	before := f.Before
	if before == uuid.Nil {
		before = uuid.Max
	}
	statement, args := deliveriesSQL, []any{endpoint, company, before, f.Limit}
	if f.Status != "" {
		statement, args = deliveriesByStatusSQL, append(args, string(f.Status))
	}
	var all []Delivery
	if err := s.db.Select(ctx, &all, statement, args...); err != nil {
		return nil, fmt.Errorf("list webhook deliveries: %w", err)
	}
	return all, nil
}

// findDeliverySQL finds by primary key and locks nothing.
const findDeliverySQL = `SELECT ` + deliveryColumns + ` FROM webhook_deliveries WHERE id = $3 AND endpoint_id = $1 AND company_id = $2`

// FindDelivery returns a delivery of an endpoint of the company, or pg.ErrNotFound.
func (s *Store) FindDelivery(ctx context.Context, company, endpoint, id uuid.UUID) (Delivery, error) {
	var d Delivery
	if err := s.db.Get(ctx, &d, findDeliverySQL, endpoint, company, id); err != nil {
		return Delivery{}, fmt.Errorf("find webhook delivery: %w", err)
	}
	return d, nil
}

// firstSQL is a time of the next attempt that sorts before those of the endpoint's other deliveries: an endpoint that
// throttles may get a single request between two pauses. It reads one row of webhook_deliveries_retrying.
const firstSQL = `least(now(), (SELECT min(r.next_at) - interval '1 microsecond' FROM webhook_deliveries r
    WHERE r.endpoint_id = $1 AND r.company_id = $2 AND r.status = 'RETRYING'))`

const (
	// lockEndpointSQL locks the endpoint by primary key, so that changes of its deliveries run one after the other.
	lockEndpointSQL = `SELECT status FROM webhook_endpoints WHERE id = $1 AND company_id = $2 FOR UPDATE`

	// retrySQL makes one delivery due before all others, by primary key, or WAITING if an earlier delivery of the same
	// email is open, which it finds by webhook_deliveries_open. If the earlier one failed before and is replayed, it
	// may itself be waiting for this one: advanceSQL then makes it due.
	retrySQL = `
UPDATE webhook_deliveries d SET
    status = CASE WHEN behind.yes THEN 'WAITING' ELSE 'RETRYING' END, next_at = CASE WHEN behind.yes THEN NULL ELSE ` + firstSQL + ` END,
    scheduled_at = NULL, attempts = 0, updated_at = now()
FROM (SELECT EXISTS (SELECT FROM webhook_deliveries w, webhook_deliveries o
    WHERE w.id = $3 AND w.company_id = $2 AND o.endpoint_id = $1 AND o.company_id = $2 AND o.email_id = w.email_id AND o.status IN ('RETRYING', 'WAITING')
        AND (o.position, o.id) < (w.position, w.id)) AS yes) behind
WHERE d.id = $3 AND d.endpoint_id = $1 AND d.company_id = $2 AND d.status <> 'WAITING'
RETURNING d.id, d.email_id`

	// dueSQL recomputes the summary of an endpoint from its open deliveries, by webhook_deliveries_open and
	// webhook_deliveries_retrying, and from its running replays, which wait while the cursor has stopped. On an
	// endpoint that is down and has no open delivery a replay is due: otherwise no attempt would detect that the
	// endpoint is up again. It locks the endpoint by primary key.
	dueSQL = `
UPDATE webhook_endpoints e SET
    open_deliveries = n.open,
    due_at = least(
        (SELECT min(next_at) FROM webhook_deliveries d WHERE d.endpoint_id = $1 AND d.company_id = $2 AND d.status = 'RETRYING'),
        (SELECT now() FROM webhook_replays r WHERE r.endpoint_id = $1 AND r.company_id = $2 AND r.status = 'RUNNING'
            AND (e.failures < $3 OR n.open = 0) AND n.open < $4 LIMIT 1))
FROM (SELECT count(*) AS open FROM webhook_deliveries d WHERE d.endpoint_id = $1 AND d.company_id = $2 AND d.status IN ('RETRYING', 'WAITING')) n
WHERE e.id = $1 AND e.company_id = $2`
)

// endPauseSQL locks the endpoint by primary key.
const endPauseSQL = `UPDATE webhook_endpoints SET not_before = NULL WHERE id = $1 AND company_id = $2 AND not_before IS NOT NULL`

// RetryDelivery makes a delivery due at once, before all others, with a full budget of attempts, even if it was delivered
// already. It ends a pause of the endpoint.
func (s *Store) RetryDelivery(ctx context.Context, company, endpoint, id uuid.UUID) (Delivery, error) {
	var d Delivery
	err := s.change(ctx, "retry webhook delivery", company, endpoint, func(tx *sqlx.Tx) error {
		var found []struct {
			ID    uuid.UUID     `db:"id"`
			Email uuid.NullUUID `db:"email_id"`
		}
		if err := tx.SelectContext(ctx, &found, retrySQL, endpoint, company, id); err != nil {
			return err
		}
		// No row is found if the delivery is WAITING or does not exist.
		if len(found) == 1 && found[0].Email.Valid {
			if _, err := tx.ExecContext(ctx, advanceSQL, endpoint, pg.UUIDArray([]uuid.UUID{found[0].Email.UUID}), company); err != nil {
				return err
			}
		}
		if len(found) == 1 {
			if _, err := tx.ExecContext(ctx, endPauseSQL, endpoint, company); err != nil {
				return err
			}
		}
		return tx.GetContext(ctx, &d, findDeliverySQL, endpoint, company, id)
	})
	return d, err
}

// createTestSQL may run twice.
const createTestSQL = `
INSERT INTO webhook_deliveries (id, endpoint_id, company_id, event_id, type, position, status, next_at)
VALUES ($3, $1, $2, $4, $5, 0, 'RETRYING', ` + firstSQL + `) ON CONFLICT (id) DO NOTHING`

// keptTests is how many tests of an endpoint are kept.
const keptTests = 20

// oldTestsSQL reads by webhook_deliveries_tests and locks what it deletes.
const oldTestsSQL = `
DELETE FROM webhook_deliveries WHERE company_id = $2 AND id IN (
    SELECT id FROM webhook_deliveries WHERE endpoint_id = $1 AND company_id = $2 AND position = 0 ORDER BY id DESC OFFSET $3)`

// CreateTest creates a test delivery, which is due at once, before all other deliveries, and deletes old ones. It ends a pause
// of the endpoint.
func (s *Store) CreateTest(ctx context.Context, company, endpoint, id uuid.UUID) (Delivery, error) {
	var d Delivery
	err := s.change(ctx, "create webhook test", company, endpoint, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, createTestSQL, endpoint, company, id, "test_"+id.String(), testType); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, oldTestsSQL, endpoint, company, keptTests); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, endPauseSQL, endpoint, company); err != nil {
			return err
		}
		return tx.GetContext(ctx, &d, findDeliverySQL, endpoint, company, id)
	})
	return d, err
}

// change changes deliveries of an enabled endpoint of the company and updates its summary.
func (s *Store) change(ctx context.Context, what string, company, endpoint uuid.UUID, do func(tx *sqlx.Tx) error) error {
	err := inTx(ctx, s.db, func(tx *sqlx.Tx) error {
		var status Status
		if err := tx.GetContext(ctx, &status, lockEndpointSQL, endpoint, company); err != nil {
			return err
		}
		if status == Disabled {
			return ErrDisabled
		}
		if err := do(tx); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, dueSQL, endpoint, company, DownFailures, MaxOpen)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
