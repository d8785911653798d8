package webhook

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/uuidv7"
)

// Attempted is a delivery in its new state. For RETRYING, it is attempted again at its scheduled time, but not before
// the pause RetryAfter.
type Attempted struct {
	Delivery                 // ScheduledAt is set if the attempt did not count
	Wait       time.Duration // from a counted attempt until the next scheduled time
	RetryAfter time.Duration
	// Throttled means that it is attempted again before the scheduled time: after RetryAfter, and after a quarter of
	// its age, at least 1 s, at most MaxThrottlePause.
	Throttled bool
}

// MaxThrottlePause is the longest pause after a response that asks for a lower rate without Retry-After.
const MaxThrottlePause = 5 * time.Minute

const (
	// insertDeliveriesSQL locks the rows that it inserts. A replay may repeat an event that has a row: the statement
	// then updates that row unless it is open.
	insertDeliveriesSQL = `
INSERT INTO webhook_deliveries AS d
    (id, endpoint_id, company_id, event_id, type, position, email_id, status, attempts, next_at, scheduled_at, last_attempt_at, last_status, last_error, last_took_ms)
SELECT n.id, $1, $2, n.event_id, n.type, n.position, n.email_id, n.status, n.attempts,
    CASE WHEN n.status = 'RETRYING' THEN now() + CASE WHEN n.throttled THEN greatest(n.pause, 1000) ELSE greatest(n.wait, n.pause) END * interval '1 ms' END,
    CASE n.status WHEN 'RETRYING' THEN now() + n.wait * interval '1 ms' END, CASE WHEN n.attempts > 0 THEN now() END,
    nullif(n.last_status, 0), nullif(n.last_error, ''), CASE WHEN n.attempts > 0 THEN n.took END
FROM unnest($3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::uuid[], $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bool[], $13::bigint[], $14::text[], $15::bigint[])
    AS n (id, event_id, type, position, email_id, status, attempts, wait, pause, throttled, last_status, last_error, took)
ORDER BY n.id
ON CONFLICT (endpoint_id, event_id) DO UPDATE SET
    status = excluded.status, attempts = excluded.attempts, next_at = excluded.next_at, scheduled_at = excluded.scheduled_at,
    last_attempt_at = excluded.last_attempt_at,
    last_status = excluded.last_status, last_error = excluded.last_error, last_took_ms = excluded.last_took_ms, updated_at = now()
WHERE d.status IN ('DELIVERED', 'FAILED')`

	// updateDeliveriesSQL locks the rows by primary key, in the order of their ids.
	updateDeliveriesSQL = `
UPDATE webhook_deliveries d SET
    status = n.status, attempts = n.attempts,
    next_at = CASE WHEN n.status = 'RETRYING' THEN greatest(now() + n.pause * interval '1 ms', CASE
        WHEN n.throttled THEN now() + least(greatest((now() - d.created_at) / 4, interval '1 s'), $11 * interval '1 ms')
        ELSE coalesce(n.scheduled_at, now() + n.wait * interval '1 ms') END) END,
    scheduled_at = CASE n.status WHEN 'RETRYING' THEN coalesce(n.scheduled_at, now() + n.wait * interval '1 ms') END,
    last_attempt_at = now(), last_status = nullif(n.last_status, 0), last_error = nullif(n.last_error, ''), last_took_ms = n.took, updated_at = now()
FROM unnest($2::uuid[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bool[], $8::bigint[], $9::text[], $10::bigint[], $12::timestamptz[])
    AS n (id, status, attempts, wait, pause, throttled, last_status, last_error, took, scheduled_at)
WHERE d.id = n.id AND d.endpoint_id = $1`

	// deliveredSQL locks the rows of failed deliveries that it finds by webhook_deliveries_event.
	deliveredSQL = `
UPDATE webhook_deliveries d SET
    status = 'DELIVERED', attempts = d.attempts + 1, last_attempt_at = now(), last_status = n.last_status, last_error = NULL, last_took_ms = n.took, updated_at = now()
FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS n (event_id, last_status, took)
WHERE d.endpoint_id = $1 AND d.company_id = $5 AND d.event_id = n.event_id AND d.status = 'FAILED'`

	// advanceSQL makes the next waiting delivery of each email due after an earlier one has ended. It reads
	// webhook_deliveries_open and locks the rows that it changes.
	advanceSQL = `
UPDATE webhook_deliveries d SET status = 'RETRYING', next_at = now(), updated_at = now()
FROM unnest($2::uuid[]) AS e (email_id)
WHERE d.endpoint_id = $1 AND d.company_id = $3 AND d.status = 'WAITING' AND d.id = (
    SELECT w.id FROM webhook_deliveries w
    WHERE w.endpoint_id = $1 AND w.company_id = $3 AND w.email_id = e.email_id AND w.status IN ('RETRYING', 'WAITING')
    ORDER BY w.position, w.id LIMIT 1)`
)

// writeDeliveries inserts the new rows, updates the attempted ones, and makes the deliveries due that waited for them.
func writeDeliveries(ctx context.Context, tx *sqlx.Tx, e Endpoint, r Result) error {
	if len(r.New) > 0 {
		if err := insertDeliveries(ctx, tx, e, r.New); err != nil {
			return err
		}
	}
	if r.Replay != nil && len(r.Delivered) > 0 {
		if err := updateDelivered(ctx, tx, e, r.Delivered); err != nil {
			return err
		}
	}
	if len(r.Attempted) == 0 {
		return nil
	}
	all := slices.Clone(r.Attempted)
	slices.SortFunc(all, func(a, b Attempted) int { return slices.Compare(a.ID[:], b.ID[:]) })
	var ids, ended, status, errs []string
	var scheduled []*string
	var attempts, waits, pauses, codes, took []int64
	var throttled []bool
	for _, a := range all {
		ids, status, attempts = append(ids, a.ID.String()), append(status, string(a.Status)), append(attempts, int64(a.Attempts))
		waits, pauses, throttled = append(waits, a.Wait.Milliseconds()), append(pauses, a.RetryAfter.Milliseconds()), append(throttled, a.Throttled)
		codes, errs, took = append(codes, number(a.LastStatus)), append(errs, text(a.LastError)), append(took, number(a.LastTookMS))
		scheduled = append(scheduled, instant(a.ScheduledAt))
		if a.Status != Retrying && a.EmailID != nil {
			ended = append(ended, a.EmailID.String())
		}
	}
	_, err := tx.ExecContext(ctx, updateDeliveriesSQL, e.ID, pq.Array(ids), pq.Array(status), pq.Array(attempts), pq.Array(waits), pq.Array(pauses),
		pq.Array(throttled), pq.Array(codes), pq.Array(errs), pq.Array(took), MaxThrottlePause.Milliseconds(), pq.Array(scheduled))
	if err == nil && len(ended) > 0 {
		_, err = tx.ExecContext(ctx, advanceSQL, e.ID, pq.Array(ended), e.CompanyID)
	}
	return err
}

// updateDelivered makes failed deliveries of events that a replay has delivered DELIVERED.
func updateDelivered(ctx context.Context, tx *sqlx.Tx, e Endpoint, all []Delivery) error {
	var events []string
	var codes, took []int64
	for _, d := range all {
		events, codes, took = append(events, d.EventID), append(codes, number(d.LastStatus)), append(took, number(d.LastTookMS))
	}
	_, err := tx.ExecContext(ctx, deliveredSQL, e.ID, pq.Array(events), pq.Array(codes), pq.Array(took), e.CompanyID)
	return err
}

func insertDeliveries(ctx context.Context, tx *sqlx.Tx, e Endpoint, all []Attempted) error {
	var ids, events, types, status, errs []string
	var emails []*string
	var positions, attempts, waits, pauses, codes, took []int64
	var throttled []bool
	for _, d := range all {
		id := d.ID
		if id == uuid.Nil {
			id = uuidv7.New()
		}
		var mail *string
		if d.EmailID != nil {
			text := d.EmailID.String()
			mail = &text
		}
		ids, events, types = append(ids, id.String()), append(events, d.EventID), append(types, d.Type)
		positions, emails, status = append(positions, d.Position), append(emails, mail), append(status, string(d.Status))
		attempts, waits, pauses = append(attempts, int64(d.Attempts)), append(waits, d.Wait.Milliseconds()), append(pauses, d.RetryAfter.Milliseconds())
		throttled, codes = append(throttled, d.Throttled), append(codes, number(d.LastStatus))
		errs, took = append(errs, text(d.LastError)), append(took, number(d.LastTookMS))
	}
	_, err := tx.ExecContext(ctx, insertDeliveriesSQL, e.ID, e.CompanyID, pq.Array(ids), pq.Array(events), pq.Array(types), pq.Array(positions),
		pq.Array(emails), pq.Array(status), pq.Array(attempts), pq.Array(waits), pq.Array(pauses), pq.Array(throttled), pq.Array(codes), pq.Array(errs), pq.Array(took))
	return err
}
