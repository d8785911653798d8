package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

const endpointColumns = `
id, company_id, url, description, types, status, disabled_reason, disabled_at, secret_enc, 
CASE WHEN old_secret_until > now() THEN old_secret_enc END AS old_secret_enc, CASE WHEN old_secret_until > now() THEN old_secret_until END AS old_secret_until,
feed_position, feed_number,
failures, failing_since, last_success_at, last_failure_at, last_error, CASE WHEN not_before > now() THEN not_before END AS not_before,
open_deliveries, created_at, updated_at`

// createSQL takes the company's first free slot, which it finds by webhook_endpoints_slot, and locks
// the new row. It may run twice. A concurrent one may take the same slot: then it inserts nothing.
// The cursor starts at the newest event.
const createSQL = `
INSERT INTO webhook_endpoints (id, company_id, slot, url, description, types, secret_enc, feed_position)
SELECT $1, $2, s.slot, $3, $4, $5, $6, (SELECT newest FROM event_positions)
FROM generate_series(1, 20) AS s (slot)
WHERE NOT EXISTS (SELECT FROM webhook_endpoints e WHERE e.company_id = $2 AND e.slot = s.slot)
ORDER BY s.slot LIMIT 1
ON CONFLICT DO NOTHING`

// Create stores a new endpoint, which receives the events from now on. ErrTooManyEndpoints: nothing
// was stored.
func (s *Store) Create(ctx context.Context, e Endpoint) error {
	for range MaxEndpoints {
		n, err := s.exec(ctx, createSQL, e.ID, e.CompanyID, e.URL, e.Description, textArray(e.Types), e.Secret)
		if err != nil {
			return fmt.Errorf("create webhook endpoint: %w", err)
		}
		if n == 1 {
			return nil
		}
		all, err := s.List(ctx, e.CompanyID)
		switch {
		case err != nil:
			return err
		case has(all, e.ID):
			return nil // the statement ran twice
		case len(all) >= MaxEndpoints:
			return ErrTooManyEndpoints
		}
	}
	return ErrTooManyEndpoints // others took each slot
}

func has(all []Endpoint, id uuid.UUID) bool {
	for _, e := range all {
		if e.ID == id {
			return true
		}
	}
	return false
}

// listSQL reads by webhook_endpoints_slot and locks nothing.
const listSQL = `SELECT ` + endpointColumns + ` FROM webhook_endpoints WHERE company_id = $1 ORDER BY slot`

// List returns the company's endpoints, at most MaxEndpoints.
func (s *Store) List(ctx context.Context, company uuid.UUID) ([]Endpoint, error) {
	var all []Endpoint
	if err := s.selectAll(ctx, &all, listSQL, company); err != nil {
		return nil, fmt.Errorf("list webhook endpoints: %w", err)
	}
	return all, nil
}

// findSQL finds by primary key and locks nothing.
const findSQL = `SELECT ` + endpointColumns + ` FROM webhook_endpoints WHERE id = $1 AND company_id = $2`

// Find returns an endpoint of the company, or pg.ErrNotFound.
func (s *Store) Find(ctx context.Context, company, id uuid.UUID) (Endpoint, error) {
	var e Endpoint
	if err := s.get(ctx, &e, findSQL, id, company); err != nil {
		return Endpoint{}, fmt.Errorf("find webhook endpoint: %w", err)
	}
	return e, nil
}

// Change holds the fields to set; nil = unchanged.
type Change struct {
	URL         *string
	Description *string
	Types       *[]string
}

// Each of these locks one row by primary key, for as long as it takes to write it: the sender's
// transactions lock the row too, and none of them is open during a request to the endpoint.
const (
	// What is known about the failures of the old URL does not apply to a new one.
	updateSQL = `
UPDATE webhook_endpoints e SET
    url = coalesce($3, e.url), description = coalesce($4, e.description), types = coalesce($5, e.types),
    failures = CASE WHEN $3 <> e.url THEN 0 ELSE e.failures END, failing_since = CASE WHEN $3 <> e.url THEN NULL ELSE e.failing_since END,
    not_before = CASE WHEN $3 <> e.url THEN NULL ELSE e.not_before END, updated_at = now()
FROM (SELECT id, url FROM webhook_endpoints WHERE id = $1 AND company_id = $2 FOR UPDATE) was
WHERE e.id = was.id AND e.company_id = $2
RETURNING e.url <> was.url AS moved`

	deleteSQL = `DELETE FROM webhook_endpoints WHERE id = $1 AND company_id = $2`

	rotateSQL = `
UPDATE webhook_endpoints SET
    old_secret_enc = secret_enc, old_secret_until = now() + $4 * interval '1 ms', secret_enc = $3, updated_at = now()
WHERE id = $1 AND company_id = $2 AND secret_enc <> $3`

	// What is known about its failures is forgotten, and every open delivery is due. A process that
	// serves the endpoint goes on.
	enableSQL = `
UPDATE webhook_endpoints SET
    status = 'ENABLED', disabled_reason = NULL, disabled_at = NULL, failures = 0, failing_since = NULL, not_before = NULL,
    due_at = CASE WHEN open_deliveries > 0 THEN now() ELSE due_at END, updated_at = now()
WHERE id = $1 AND company_id = $2 AND (status = 'DISABLED' AND (disabled_reason <> 'OPERATOR' OR $3) OR status = 'ENABLED' AND failures > 0)`

	hurrySQL = `
UPDATE webhook_deliveries SET next_at = now() WHERE endpoint_id = $1 AND company_id = $2 AND status = 'RETRYING' AND next_at > now()`

	disableSQL = `
UPDATE webhook_endpoints SET
    status = 'DISABLED', disabled_reason = 'REQUESTED', disabled_at = now(), lease_token = NULL, lease_until = NULL, updated_at = now()
WHERE id = $1 AND company_id = $2 AND status = 'ENABLED'`
)

// Update sets the given fields. Open deliveries are attempted at a new URL at once.
func (s *Store) Update(ctx context.Context, company, id uuid.UUID, c Change) error {
	var types any
	if c.Types != nil {
		types = textArray(*c.Types)
	}
	err := s.inTx(ctx, func(tx *sqlx.Tx) error {
		var moved bool
		if err := tx.GetContext(ctx, &moved, updateSQL, id, company, c.URL, c.Description, types); err != nil || !moved {
			return err
		}
		if _, err := tx.ExecContext(ctx, hurrySQL, id, company); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, dueSQL, id, company, DownFailures, MaxOpen)
		return err
	})
	if err != nil {
		return fmt.Errorf("update webhook endpoint: %w", err)
	}
	return nil
}

// Delete deletes the endpoint with its deliveries and replays.
func (s *Store) Delete(ctx context.Context, company, id uuid.UUID) error {
	return s.one(ctx, "delete webhook endpoint", deleteSQL, id, company)
}

// Rotate replaces the secret; the old one signs too for the given time.
func (s *Store) Rotate(ctx context.Context, company, id uuid.UUID, secret []byte, keep time.Duration) error {
	n, err := s.exec(ctx, rotateSQL, id, company, secret, keep.Milliseconds())
	if err == nil && n == 0 {
		_, err = s.Find(ctx, company, id) // the statement ran twice, or there is no endpoint
	}
	if err != nil {
		return fmt.Errorf("rotate webhook secret: %w", err)
	}
	return nil
}

// ErrDisabledByOperator: only an operator may enable the endpoint.
var ErrDisabledByOperator = errors.New("an operator has disabled the webhook endpoint")

// Enable enables the endpoint for its company. It goes on where it stopped: with the events since then.
func (s *Store) Enable(ctx context.Context, company, id uuid.UUID) error {
	err := s.inTx(ctx, func(tx *sqlx.Tx) error {
		result, err := tx.ExecContext(ctx, enableSQL, id, company, false)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, hurrySQL, id, company)
		return err
	})
	if err != nil {
		return fmt.Errorf("enable webhook endpoint: %w", err)
	}
	now, err := s.Find(ctx, company, id)
	if err == nil && now.DisabledReason != nil && *now.DisabledReason == ByOperator {
		return ErrDisabledByOperator
	}
	return err
}

// Disable disables the endpoint for its company.
func (s *Store) Disable(ctx context.Context, company, id uuid.UUID) error {
	_, err := s.exec(ctx, disableSQL, id, company)
	if err != nil {
		return fmt.Errorf("disable webhook endpoint: %w", err)
	}
	_, err = s.Find(ctx, company, id)
	return err
}

func textArray(texts []string) any {
	if texts == nil {
		texts = []string{}
	}
	return pq.StringArray(texts)
}
