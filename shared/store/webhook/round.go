package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

// RoundSize is the maximum number of deliveries that a round attempts.
const RoundSize = 100

// Round is the work of an endpoint that is due now.
type Round struct {
	Endpoint
	// Due holds the deliveries to attempt, at most one per email.
	Due []Delivery
	// Probe means that the endpoint is down, and Due is one delivery that is not due. It is attempted to check whether
	// the endpoint is up again; a failure does not count as an attempt of the delivery.
	Probe bool
	// OpenEmails are the emails with open deliveries. Later events of these emails wait.
	OpenEmails []uuid.UUID
	// Replay is the oldest running replay; nil = none.
	Replay *Replay
}

const (
	// heldSQL finds by primary key and locks nothing.
	heldSQL = `SELECT ` + endpointColumns + ` FROM webhook_endpoints e WHERE id = $1 AND lease_token = $2 AND lease_until > now() AND ` + activeSQL

	// dueDeliveriesSQL reads along webhook_deliveries_retrying.
	dueDeliveriesSQL = `
SELECT ` + deliveryColumns + ` FROM webhook_deliveries
WHERE endpoint_id = $1 AND status = 'RETRYING' AND next_at <= now() ORDER BY next_at, id LIMIT $2`

	// probeSQL reads along webhook_deliveries_retrying without the condition on next_at, if the endpoint's last failure
	// is old enough.
	probeSQL = `
SELECT ` + deliveryColumns + ` FROM webhook_deliveries d
WHERE endpoint_id = $1 AND status = 'RETRYING'
  AND (SELECT last_failure_at <= now() - $2 * interval '1 ms' FROM webhook_endpoints e WHERE e.id = $1)
ORDER BY next_at, id LIMIT 1`

	// openEmailsSQL reads webhook_deliveries_open, which has little more than MaxOpen rows per endpoint.
	openEmailsSQL = `
SELECT DISTINCT email_id FROM webhook_deliveries
WHERE endpoint_id = $1 AND status IN ('RETRYING', 'WAITING') AND email_id IS NOT NULL`

	// runningReplaySQL reads along webhook_replays_running.
	runningReplaySQL = `SELECT ` + replayColumns + ` FROM webhook_replays WHERE endpoint_id = $1 AND status = 'RUNNING' ORDER BY id LIMIT 1`
)

// Load reads the work of the endpoint of a lease. probeAfter is the time from the last failure of an endpoint that is
// down to its next probe. ErrLeaseLost: the lease has expired, or the company is suspended.
func (s *Store) Load(ctx context.Context, l Lease, probeAfter time.Duration) (Round, error) {
	var r Round
	err := s.get(ctx, &r.Endpoint, heldSQL, l.EndpointID, l.Token)
	if errors.Is(err, errNotFound) {
		return Round{}, ErrLeaseLost
	}
	if err == nil {
		err = s.selectAll(ctx, &r.Due, dueDeliveriesSQL, l.EndpointID, RoundSize)
	}
	if err == nil && len(r.Due) == 0 && r.Down() {
		err = s.selectAll(ctx, &r.Due, probeSQL, l.EndpointID, probeAfter.Milliseconds())
		r.Probe = len(r.Due) > 0
	}
	if err == nil && r.Open > 0 {
		err = s.selectAll(ctx, &r.OpenEmails, openEmailsSQL, l.EndpointID)
	}
	var replays []Replay
	if err == nil {
		err = s.selectAll(ctx, &replays, runningReplaySQL, l.EndpointID)
	}
	if err != nil {
		return Round{}, fmt.Errorf("load webhook endpoint: %w", err)
	}
	if len(replays) > 0 {
		r.Replay = &replays[0]
	}
	return r, nil
}

// Result is the result of a round.
type Result struct {
	// URL is the endpoint's URL that the round attempted; "" = it attempted none.
	URL string
	// New holds deliveries without a row that failed, or that wait for an earlier one of the same email.
	New []Attempted
	// Attempted holds deliveries with a row, in their new state. Wait is the time until NextAt.
	Attempted []Attempted
	// Cursor is the endpoint's new cursor; the zero Cursor = unchanged.
	Cursor
	// Succeeded means that at least one attempt succeeded, which resets the earlier failures.
	Succeeded bool
	// Failures is the number of failed attempts since the last success, and Error the code of the last one.
	Failures int
	Error    string
	// Gone means that the endpoint answered 410, which disables it.
	Gone bool
	// RetryAfter is the pause that the endpoint requested; 0 = none.
	RetryAfter time.Duration
	// Replay is the replay's progress; nil = none.
	Replay *ReplayProgress
}

// ofOldURL returns the result of a round whose URL was replaced before the round was recorded. It says nothing about the
// new URL's health, and failed deliveries are due at the new URL at once, without a counted attempt.
func (r Result) ofOldURL() Result {
	r.Succeeded, r.Failures, r.Error, r.Gone, r.RetryAfter = false, 0, "", false, 0
	r.New, r.Attempted = uncounted(r.New), uncounted(r.Attempted)
	return r
}

func uncounted(all []Attempted) []Attempted {
	all = slices.Clone(all)
	for i := range all {
		if a := &all[i]; a.Status == Retrying || a.Status == Failed {
			a.Status, a.Wait = Retrying, 0
			a.Attempts = max(a.Attempts-1, 0)
		}
	}
	return all
}

// Attempted is a delivery in its new state.
type Attempted struct {
	Delivery
	Wait time.Duration // until the next attempt, for RETRYING
}

// ReplayProgress is the progress of a replay in a round.
type ReplayProgress struct {
	ID uuid.UUID
	Cursor
	Done     int
	Finished bool
}

// Recorded is the endpoint after a round.
type Recorded struct {
	Endpoint
	// DisabledNow means that this round disabled the endpoint.
	DisabledNow bool
}

const (
	// lockHeldSQL locks the endpoint by primary key.
	lockHeldSQL = `SELECT ` + endpointColumns + ` FROM webhook_endpoints WHERE id = $1 AND lease_token = $2 AND lease_until > now() FOR UPDATE`

	// insertDeliveriesSQL locks the rows that it inserts. A replay may repeat an event that has a row: the statement
	// then updates that row unless it is open.
	insertDeliveriesSQL = `
INSERT INTO webhook_deliveries AS d
    (id, endpoint_id, company_id, event_id, type, position, email_id, status, attempts, next_at, last_attempt_at, last_status, last_error, last_took_ms)
SELECT n.id, $1, $2, n.event_id, n.type, n.position, n.email_id, n.status, n.attempts,
    CASE n.status WHEN 'RETRYING' THEN now() + n.wait * interval '1 ms' END, CASE WHEN n.attempts > 0 THEN now() END,
    nullif(n.last_status, 0), nullif(n.last_error, ''), CASE WHEN n.attempts > 0 THEN n.took END
FROM unnest($3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::uuid[], $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::bigint[])
    AS n (id, event_id, type, position, email_id, status, attempts, wait, last_status, last_error, took)
ORDER BY n.id
ON CONFLICT (endpoint_id, event_id) DO UPDATE SET
    status = excluded.status, attempts = excluded.attempts, next_at = excluded.next_at, last_attempt_at = excluded.last_attempt_at,
    last_status = excluded.last_status, last_error = excluded.last_error, last_took_ms = excluded.last_took_ms, updated_at = now()
WHERE d.status IN ('DELIVERED', 'FAILED')`

	// updateDeliveriesSQL locks the rows by primary key, in the order of their ids.
	updateDeliveriesSQL = `
UPDATE webhook_deliveries d SET
    status = n.status, attempts = n.attempts, next_at = CASE n.status WHEN 'RETRYING' THEN now() + n.wait * interval '1 ms' END,
    last_attempt_at = now(), last_status = nullif(n.last_status, 0), last_error = nullif(n.last_error, ''), last_took_ms = n.took, updated_at = now()
FROM unnest($2::uuid[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[])
    AS n (id, status, attempts, wait, last_status, last_error, took)
WHERE d.id = n.id AND d.endpoint_id = $1`

	// advanceSQL makes the next waiting delivery of each email due after an earlier one has ended. It reads
	// webhook_deliveries_open and locks the rows that it changes.
	advanceSQL = `
UPDATE webhook_deliveries d SET status = 'RETRYING', next_at = now(), updated_at = now()
FROM unnest($2::uuid[]) AS e (email_id)
WHERE d.endpoint_id = $1 AND d.company_id = $3 AND d.status = 'WAITING' AND d.id = (
    SELECT w.id FROM webhook_deliveries w
    WHERE w.endpoint_id = $1 AND w.company_id = $3 AND w.email_id = e.email_id AND w.status IN ('RETRYING', 'WAITING')
    ORDER BY w.position, w.id LIMIT 1)`

	// recordSQL locks the endpoint by primary key.
	recordSQL = `
UPDATE webhook_endpoints SET
    feed_position = CASE WHEN ($3, $8::bigint) > (feed_position, feed_number) THEN $3 ELSE feed_position END,
    feed_number = CASE WHEN ($3, $8::bigint) > (feed_position, feed_number) THEN $8 ELSE feed_number END, failures = $4,
    failing_since = CASE WHEN $4 = 0 THEN NULL WHEN $5 THEN now() ELSE coalesce(failing_since, now()) END,
    last_success_at = CASE WHEN $5 THEN now() ELSE last_success_at END,
    last_failure_at = CASE WHEN $6 <> '' THEN now() ELSE last_failure_at END, last_error = coalesce(nullif($6, ''), last_error),
    not_before = CASE WHEN $7 > 0 THEN now() + $7 * interval '1 ms' WHEN $5 THEN NULL ELSE not_before END, updated_at = now()
WHERE id = $1 AND company_id = $2`

	// disableFailingSQL locks the endpoint by primary key.
	disableFailingSQL = `
UPDATE webhook_endpoints SET
    status = 'DISABLED', disabled_at = now(), disabled_reason = CASE WHEN $3 THEN 'GONE' ELSE 'FAILING' END,
    lease_token = NULL, lease_until = NULL, updated_at = now()
WHERE id = $1 AND company_id = $2 AND ($3 OR failing_since <= now() - $4 * interval '1 ms')`

	// saveReplaySQL locks the replay by primary key.
	saveReplaySQL = `
UPDATE webhook_replays SET
    feed_position = CASE WHEN ($3, $4::bigint) > (feed_position, feed_number) THEN $3 ELSE feed_position END,
    feed_number = CASE WHEN ($3, $4::bigint) > (feed_position, feed_number) THEN $4 ELSE feed_number END, done = done + $5,
    status = CASE WHEN $6 THEN 'COMPLETED' ELSE status END, finished_at = CASE WHEN $6 THEN now() END
WHERE id = $2 AND endpoint_id = $1 AND status = 'RUNNING'`
)

// Record commits the result of a round: the cursor, the deliveries and the endpoint's health in one transaction. After
// a crash before the commit the whole round is repeated. disableAfter is how long an endpoint may fail before it is
// disabled. ErrLeaseLost: nothing was written.
func (s *Store) Record(ctx context.Context, l Lease, r Result, disableAfter time.Duration) (Recorded, error) {
	var after Recorded
	err := s.inTx(ctx, func(tx *sqlx.Tx) error {
		var before Endpoint
		if err := tx.GetContext(ctx, &before, lockHeldSQL, l.EndpointID, l.Token); err != nil {
			if isNoRows(err) {
				return ErrLeaseLost
			}
			return err
		}
		if r.URL != "" && r.URL != before.URL {
			r = r.ofOldURL()
		}
		if err := writeDeliveries(ctx, tx, before, r); err != nil {
			return err
		}
		failures := before.Failures + r.Failures
		if r.Succeeded {
			failures = r.Failures
		}
		if _, err := tx.ExecContext(ctx, recordSQL, before.ID, before.CompanyID, r.Position, failures, r.Succeeded, r.Error, r.RetryAfter.Milliseconds(), r.Number); err != nil {
			return err
		}
		if r.Succeeded && before.Down() {
			if _, err := tx.ExecContext(ctx, hurrySQL, before.ID, before.CompanyID); err != nil {
				return err
			}
		}
		if p := r.Replay; p != nil {
			if _, err := tx.ExecContext(ctx, saveReplaySQL, before.ID, p.ID, p.Position, p.Number, p.Done, p.Finished); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, dueSQL, before.ID, before.CompanyID, DownFailures, MaxOpen); err != nil {
			return err
		}
		// Without a failed attempt the endpoint may be healthy: failing_since is that of the last attempt, which may be
		// days ago.
		if r.Gone || r.Failures > 0 {
			result, err := tx.ExecContext(ctx, disableFailingSQL, before.ID, before.CompanyID, r.Gone, disableAfter.Milliseconds())
			if err != nil {
				return err
			}
			n, err := result.RowsAffected()
			if err != nil {
				return err
			}
			after.DisabledNow = n > 0
		}
		if err := tx.GetContext(ctx, &after.Endpoint, findSQL, before.ID, before.CompanyID); err != nil || !after.DisabledNow {
			return err
		}
		return addDisabled(ctx, tx, after.Endpoint)
	})
	if err != nil {
		return Recorded{}, fmt.Errorf("record webhook deliveries: %w", err)
	}
	return after, nil
}

// writeDeliveries inserts the new rows, updates the attempted ones, and makes the deliveries due that waited for them.
func writeDeliveries(ctx context.Context, tx *sqlx.Tx, e Endpoint, r Result) error {
	if len(r.New) > 0 {
		if err := insertDeliveries(ctx, tx, e, r.New); err != nil {
			return err
		}
	}
	if len(r.Attempted) == 0 {
		return nil
	}
	all := slices.Clone(r.Attempted)
	slices.SortFunc(all, func(a, b Attempted) int { return slices.Compare(a.ID[:], b.ID[:]) })
	var ids, ended []string
	var status, errs []string
	var attempts, waits, codes, took []int64
	for _, a := range all {
		ids, status, attempts = append(ids, a.ID.String()), append(status, string(a.Status)), append(attempts, int64(a.Attempts))
		waits, codes = append(waits, a.Wait.Milliseconds()), append(codes, number(a.LastStatus))
		errs, took = append(errs, text(a.LastError)), append(took, number(a.LastTookMS))
		if a.Status != Retrying && a.EmailID != nil {
			ended = append(ended, a.EmailID.String())
		}
	}
	_, err := tx.ExecContext(ctx, updateDeliveriesSQL, e.ID, pq.Array(ids), pq.Array(status), pq.Array(attempts), pq.Array(waits), pq.Array(codes), pq.Array(errs), pq.Array(took))
	if err == nil && len(ended) > 0 {
		_, err = tx.ExecContext(ctx, advanceSQL, e.ID, pq.Array(ended), e.CompanyID)
	}
	return err
}

func insertDeliveries(ctx context.Context, tx *sqlx.Tx, e Endpoint, all []Attempted) error {
	var ids, events, types, status, errs []string
	var emails []*string
	var positions, attempts, waits, codes, took []int64
	for _, d := range all {
		id := d.ID
		if id == uuid.Nil {
			id = uuid.Must(uuid.NewV7())
		}
		var mail *string
		if d.EmailID != nil {
			text := d.EmailID.String()
			mail = &text
		}
		ids, events, types = append(ids, id.String()), append(events, d.EventID), append(types, d.Type)
		positions, emails, status = append(positions, d.Position), append(emails, mail), append(status, string(d.Status))
		attempts, waits, codes = append(attempts, int64(d.Attempts)), append(waits, d.Wait.Milliseconds()), append(codes, number(d.LastStatus))
		errs, took = append(errs, text(d.LastError)), append(took, number(d.LastTookMS))
	}
	_, err := tx.ExecContext(ctx, insertDeliveriesSQL, e.ID, e.CompanyID, pq.Array(ids), pq.Array(events), pq.Array(types), pq.Array(positions),
		pq.Array(emails), pq.Array(status), pq.Array(attempts), pq.Array(waits), pq.Array(codes), pq.Array(errs), pq.Array(took))
	return err
}
