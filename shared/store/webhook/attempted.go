package webhook

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/sql"
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

// advanceSQL makes the next waiting delivery of each email due after an earlier one has ended. It reads
// webhook_deliveries_open and locks the rows that it changes.
const advanceSQL = `
UPDATE webhook_deliveries d SET status = 'RETRYING', next_at = now(), updated_at = now()
FROM unnest($2::uuid[]) AS e (email_id)
WHERE d.endpoint_id = $1 AND d.company_id = $3 AND d.status = 'WAITING' AND d.id = (
    SELECT w.id FROM webhook_deliveries w
    WHERE w.endpoint_id = $1 AND w.company_id = $3 AND w.email_id = e.email_id AND w.status IN ('RETRYING', 'WAITING')
    ORDER BY w.position, w.id LIMIT 1)`

// writeDeliveries inserts the new rows, updates the attempted ones, and makes the deliveries due that waited for them.
func writeDeliveries(ctx context.Context, tx *sqlx.Tx, e Endpoint, r Result) error {
	if len(r.New) > 0 {
		if err := insertDeliveries(ctx, tx, e, r.New); err != nil {
			return err
		}
	}
	if r.Replay != nil && len(r.Delivered) > 0 {
		if _, err := tx.ExecContext(ctx, sql.MarkDelivered, deliveredParameters.Arguments(e, r.Delivered)...); err != nil {
			return err
		}
	}
	if len(r.Attempted) == 0 {
		return nil
	}
	all := slices.Clone(r.Attempted)
	slices.SortFunc(all, func(a, b Attempted) int { return slices.Compare(a.ID[:], b.ID[:]) })
	var ended []uuid.UUID
	for _, a := range all {
		if a.Status != Retrying && a.EmailID != nil {
			ended = append(ended, *a.EmailID)
		}
	}
	_, err := tx.ExecContext(ctx, sql.UpdateDeliveries, updateParameters.Arguments(e, all)...)
	if err == nil && len(ended) > 0 {
		_, err = tx.ExecContext(ctx, advanceSQL, e.ID, pg.UUIDArray(ended), e.CompanyID)
	}
	return err
}

// ofEndpoint are the scalar parameters of insert_deliveries.sql and mark_delivered.sql.
var ofEndpoint = []pg.Scalar[Endpoint]{
	pg.One("endpoint_id", "uuid", func(e Endpoint) any { return e.ID }),
	pg.One("company_id", "uuid", func(e Endpoint) any { return e.CompanyID }),
}

// stateColumns are the columns of a delivery's new state in insert_deliveries.sql and update_deliveries.sql.
var stateColumns = []pg.Column[Attempted]{
	pg.Each("status", "text", pg.Texts, func(a *Attempted) string { return string(a.Status) }),
	pg.Each("attempts", "bigint", pg.BigInts, func(a *Attempted) int64 { return int64(a.Attempts) }),
	pg.Each("wait_ms", "bigint", pg.BigInts, func(a *Attempted) int64 { return a.Wait.Milliseconds() }),
	pg.Each("pause_ms", "bigint", pg.BigInts, func(a *Attempted) int64 { return a.RetryAfter.Milliseconds() }),
	pg.Each("throttled", "bool", pg.Bools, func(a *Attempted) bool { return a.Throttled }),
	pg.Each("last_status", "bigint", pg.BigInts, func(a *Attempted) int64 { return int64(orZero(a.LastStatus)) }),
	pg.Each("last_error", "text", pg.Texts, func(a *Attempted) string { return orZero(a.LastError) }),
	pg.Each("took_ms", "bigint", pg.BigInts, func(a *Attempted) int64 { return int64(orZero(a.LastTookMS)) }),
}

// insertParameters are the parameters of insert_deliveries.sql.
var insertParameters = pg.Parameters[Endpoint, Attempted]{
	Scalars: ofEndpoint,
	Columns: slices.Concat([]pg.Column[Attempted]{
		pg.Each("id", "uuid", pg.UUIDs, func(a *Attempted) uuid.UUID { return a.ID }),
		pg.Each("event_id", "text", pg.Texts, func(a *Attempted) string { return a.EventID }),
		pg.Each("type", "text", pg.Texts, func(a *Attempted) string { return a.Type }),
		pg.Each("position", "bigint", pg.BigInts, func(a *Attempted) int64 { return a.Position }),
		pg.Each("email_id", "uuid", pg.OptionalUUIDs, func(a *Attempted) uuid.UUID { return orZero(a.EmailID) }),
	}, stateColumns),
}

// updateParameters are the parameters of update_deliveries.sql.
var updateParameters = pg.Parameters[Endpoint, Attempted]{
	Scalars: []pg.Scalar[Endpoint]{
		pg.One("endpoint_id", "uuid", func(e Endpoint) any { return e.ID }),
		pg.One("longest_pause_ms", "double precision", func(Endpoint) any { return MaxThrottlePause.Milliseconds() }),
	},
	Columns: slices.Concat([]pg.Column[Attempted]{
		pg.Each("id", "uuid", pg.UUIDs, func(a *Attempted) uuid.UUID { return a.ID }),
		pg.Each("scheduled_at", "timestamptz", pg.Times, func(a *Attempted) time.Time { return orZero(a.ScheduledAt) }),
	}, stateColumns),
}

// deliveredParameters are the parameters of mark_delivered.sql.
var deliveredParameters = pg.Parameters[Endpoint, Delivery]{
	Scalars: ofEndpoint,
	Columns: []pg.Column[Delivery]{
		pg.Each("event_id", "text", pg.Texts, func(d *Delivery) string { return d.EventID }),
		pg.Each("last_status", "bigint", pg.BigInts, func(d *Delivery) int64 { return int64(orZero(d.LastStatus)) }),
		pg.Each("took_ms", "bigint", pg.BigInts, func(d *Delivery) int64 { return int64(orZero(d.LastTookMS)) }),
	},
}

// insertDeliveries gives an id to each delivery that has none.
func insertDeliveries(ctx context.Context, tx *sqlx.Tx, e Endpoint, all []Attempted) error {
	all = slices.Clone(all)
	for i := range all {
		if all[i].ID == uuid.Nil {
			all[i].ID = uuidv7.New()
		}
	}
	_, err := tx.ExecContext(ctx, sql.InsertDeliveries, insertParameters.Arguments(e, all)...)
	return err
}
