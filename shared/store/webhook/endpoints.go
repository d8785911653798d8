package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/store/internal/pg"
)

// Each method that changes an endpoint, a delivery or a replay returns the row as its commit leaves it. No read follows
// the commit, because its failure would hide the change.

const endpointColumns = `
id, company_id, url, description, types, status, disabled_reason, disabled_at, secret_enc, 
CASE WHEN old_secret_until > now() THEN old_secret_enc END AS old_secret_enc, CASE WHEN old_secret_until > now() THEN old_secret_until END AS old_secret_until,
feed_position, feed_number,
failures, failing_since, last_success_at, last_failure_at, last_error, CASE WHEN not_before > now() THEN not_before END AS not_before,
open_deliveries, created_at, updated_at`

// createSQL takes the company's first free slot, which it finds by webhook_endpoints_slot, and locks the new row. It
// may run twice. If a concurrent run takes the same slot, or the company has an endpoint whose id has the same second half
// (SameKey), it inserts nothing. The cursor starts at the newest event.
const createSQL = `
INSERT INTO webhook_endpoints (id, company_id, slot, url, description, types, secret_enc, feed_position)
SELECT $1, $2, s.slot, $3, $4, $5, $6, (SELECT newest FROM event_positions)
FROM generate_series(1, 20) AS s (slot)
WHERE NOT EXISTS (SELECT FROM webhook_endpoints e WHERE e.company_id = $2 AND e.slot = s.slot)
  AND NOT EXISTS (SELECT FROM webhook_endpoints same WHERE same.company_id = $2 AND substr(same.id::text, 20) = substr($1::uuid::text, 20))
ORDER BY s.slot LIMIT 1
ON CONFLICT DO NOTHING RETURNING ` + endpointColumns

// KeyedID returns the id of an endpoint that is created with an Idempotency-Key. The first half is a hash of the request's body
// and the second one of the company, route and key. So a repeated request is recognized without the endpoint's fields, which may
// have changed, and without a stored response, which would contain the secret in plain text.
func KeyedID(company uuid.UUID, route, key string, body []byte) uuid.UUID {
	id := uuid.NewSHA1(company, []byte(route+"\x00"+key))
	copy(id[:8], body)
	id[6] = id[6]&0x0f | 0x80 // version 8: an id of the application's own format
	return id
}

// SameKey reports whether two ids of a company were made for the same Idempotency-Key. Other ids differ in 62 random bits.
func SameKey(a, b uuid.UUID) bool { return bytes.Equal(a[8:], b[8:]) }

// Create stores a new endpoint, which receives events from now on. If the company has one with the same Idempotency-Key, it
// returns that one. ErrTooManyEndpoints: nothing was stored.
func (s *Store) Create(ctx context.Context, e Endpoint) (Endpoint, error) {
	for range MaxEndpoints {
		var made []Endpoint
		runs, err := s.write(ctx, &made, createSQL, e.ID, e.CompanyID, e.URL, e.Description, textArray(e.Types), e.Secret)
		if err != nil {
			return Endpoint{}, fmt.Errorf("create webhook endpoint: %w", err)
		}
		if len(made) == 1 {
			return made[0], nil
		}
		all, err := s.List(ctx, e.CompanyID)
		own := slices.IndexFunc(all, func(one Endpoint) bool { return SameKey(one.ID, e.ID) })
		switch {
		case err != nil && runs > 1: // an earlier run may have inserted the row
			return Endpoint{}, fmt.Errorf("create webhook endpoint: %w", errors.Join(pg.ErrUnknownOutcome, err))
		case err != nil:
			return Endpoint{}, err
		case own >= 0: // of an earlier request; or database/sql repeated the INSERT, and the first one had succeeded
			return all[own], nil
		case len(all) >= MaxEndpoints:
			return Endpoint{}, ErrTooManyEndpoints
		}
	}
	return Endpoint{}, ErrTooManyEndpoints // concurrent requests took each slot
}

// listSQL reads by webhook_endpoints_slot and locks nothing.
const listSQL = `SELECT ` + endpointColumns + ` FROM webhook_endpoints WHERE company_id = $1 ORDER BY slot`

// List returns the company's endpoints, at most MaxEndpoints.
func (s *Store) List(ctx context.Context, company uuid.UUID) ([]Endpoint, error) {
	var all []Endpoint
	if err := s.db.Select(ctx, &all, listSQL, company); err != nil {
		return nil, fmt.Errorf("list webhook endpoints: %w", err)
	}
	return all, nil
}

// findSQL finds by primary key and locks nothing.
const findSQL = `SELECT ` + endpointColumns + ` FROM webhook_endpoints WHERE id = $1 AND company_id = $2`

// Find returns an endpoint of the company, or pg.ErrNotFound.
func (s *Store) Find(ctx context.Context, company, id uuid.UUID) (Endpoint, error) {
	var e Endpoint
	if err := s.db.Get(ctx, &e, findSQL, id, company); err != nil {
		return Endpoint{}, fmt.Errorf("find webhook endpoint: %w", err)
	}
	return e, nil
}

// Change holds the fields to set; nil = unchanged. An empty Description removes it.
type Change struct {
	URL         *string
	Description *string
	Types       *[]string
}

// Each of these statements locks one row by primary key, only for the duration of its transaction. The sender's
// transactions lock the row too, but none of them is open during a request to the endpoint.
const (
	// A new URL resets the failures, which were those of the old one.
	updateSQL = `
UPDATE webhook_endpoints e SET
    url = coalesce($3, e.url), description = nullif(coalesce($4, e.description), ''), types = coalesce($5, e.types),
    failures = CASE WHEN $3 <> e.url THEN 0 ELSE e.failures END, failing_since = CASE WHEN $3 <> e.url THEN NULL ELSE e.failing_since END,
    not_before = CASE WHEN $3 <> e.url THEN NULL ELSE e.not_before END, updated_at = now()
FROM (SELECT id, url FROM webhook_endpoints WHERE id = $1 AND company_id = $2 FOR UPDATE) was
WHERE e.id = was.id AND e.company_id = $2
RETURNING e.url <> was.url AS moved`

	// It may run twice, and is repeated if its answer was lost. Until $5 ms after a rotation it therefore replaces the
	// secret of that rotation, and the old one signs as long as that rotation said.
	rotateSQL = `
UPDATE webhook_endpoints SET
    old_secret_enc = CASE WHEN ` + rotatedSQL + ` THEN old_secret_enc ELSE secret_enc END,
    old_secret_until = CASE WHEN ` + rotatedSQL + ` THEN old_secret_until ELSE now() + $4 * interval '1 ms' END,
    secret_enc = $3, updated_at = now()
WHERE id = $1 AND company_id = $2 RETURNING ` + endpointColumns

	// rotatedSQL is true when the last rotation is at most $5 ms old.
	rotatedSQL = `old_secret_until BETWEEN now() + ($4::bigint - $5) * interval '1 ms' AND now() + $4 * interval '1 ms'`

	// It resets the failures and makes the endpoint due if it has open deliveries. A process that serves the endpoint
	// keeps its lease.
	enableSQL = `
UPDATE webhook_endpoints SET
    status = 'ENABLED', disabled_reason = NULL, disabled_at = NULL, failures = 0, failing_since = NULL, not_before = NULL,
    due_at = CASE WHEN open_deliveries > 0 THEN now() ELSE due_at END, updated_at = now()
WHERE id = $1 AND company_id = $2 AND (status = 'DISABLED' AND (disabled_reason <> 'OPERATOR' OR $3) OR status = 'ENABLED' AND failures > 0)`

	// hurrySQL makes all retries due. The attempts do not count if they fail: the scheduled time stays, or is the end of a
	// Retry-After that is later. It locks the rows that it finds by webhook_deliveries_retrying.
	hurrySQL = `
UPDATE webhook_deliveries SET next_at = now(), scheduled_at = greatest(scheduled_at, next_at) WHERE endpoint_id = $1 AND company_id = $2 AND status = 'RETRYING' AND next_at > now()`

	disableSQL = `
UPDATE webhook_endpoints SET
    status = 'DISABLED', disabled_reason = '` + string(Requested) + `', disabled_at = now(), lease_token = NULL, lease_until = NULL, updated_at = now()
WHERE id = $1 AND company_id = $2 AND status = 'ENABLED'`
)

// Update sets the given fields. Open deliveries are attempted at a new URL at once.
func (s *Store) Update(ctx context.Context, company, id uuid.UUID, c Change) (Endpoint, error) {
	var types any
	if c.Types != nil {
		types = textArray(*c.Types)
	}
	return s.changeEndpoint(ctx, "update webhook endpoint", company, id, func(tx *sqlx.Tx) error {
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
}

// changeEndpoint runs do in one transaction, and reads the endpoint before the commit.
func (s *Store) changeEndpoint(ctx context.Context, what string, company, id uuid.UUID, do func(tx *sqlx.Tx) error) (Endpoint, error) {
	var e Endpoint
	err := inTx(ctx, s.db, func(tx *sqlx.Tx) error {
		if err := do(tx); err != nil {
			return err
		}
		return tx.GetContext(ctx, &e, findSQL, id, company)
	})
	if err != nil {
		return Endpoint{}, fmt.Errorf("%s: %w", what, err)
	}
	return e, nil
}

// rotateAgain is how long after a rotation another one repeats it. It is shorter than the time in which a receiver gets
// its new secret, and longer than that in which a request is repeated.
const rotateAgain = 10 * time.Minute

// Rotate replaces the secret. The old secret also signs for the time keep. Within rotateAgain of the previous rotation,
// the secret of that rotation is discarded instead, and the old one keeps its time.
func (s *Store) Rotate(ctx context.Context, company, id uuid.UUID, secret []byte, keep time.Duration) (Endpoint, error) {
	var rotated []Endpoint
	_, err := s.write(ctx, &rotated, rotateSQL, id, company, secret, keep.Milliseconds(), rotateAgain.Milliseconds())
	if err == nil && len(rotated) == 0 {
		err = errNotFound
	}
	if err != nil {
		return Endpoint{}, fmt.Errorf("rotate webhook secret: %w", err)
	}
	return rotated[0], nil
}

// ErrDisabledByOperator: only an operator may enable the endpoint.
var ErrDisabledByOperator = errors.New("an operator has disabled the webhook endpoint")

// Enable enables the endpoint for its company. Delivery continues with the events since the endpoint was disabled.
func (s *Store) Enable(ctx context.Context, company, id uuid.UUID) (Endpoint, error) {
	e, err := s.changeEndpoint(ctx, "enable webhook endpoint", company, id, func(tx *sqlx.Tx) error {
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
	if err == nil && e.DisabledReason != nil && *e.DisabledReason == ByOperator { // enableSQL changed nothing
		return Endpoint{}, ErrDisabledByOperator
	}
	return e, err
}

// Disable disables the endpoint for its company.
func (s *Store) Disable(ctx context.Context, company, id uuid.UUID) (Endpoint, error) {
	return s.changeEndpoint(ctx, "disable webhook endpoint", company, id, func(tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, disableSQL, id, company)
		return err
	})
}

func textArray(texts []string) any {
	if texts == nil {
		texts = []string{}
	}
	return pq.StringArray(texts)
}
