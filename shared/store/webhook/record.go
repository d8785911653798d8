package webhook

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
)

// Result is the result of a round.
type Result struct {
	// URL is the endpoint's URL that the round attempted; "" = it attempted none.
	URL string
	// New holds deliveries without a row that failed, or that wait for an earlier one of the same email.
	New []Attempted
	// Delivered holds the events that a replay has delivered, which may have rows of failed deliveries.
	Delivered []Delivery
	// Attempted holds deliveries with a row, in their new state. Wait is the time until the scheduled
	// time.
	Attempted []Attempted
	// Cursor is the endpoint's new cursor; the zero Cursor = unchanged.
	Cursor
	// Succeeded means that at least one attempt succeeded, which resets the earlier failures.
	Succeeded bool
	// Refused means that the endpoint refused at least one event, which resets the earlier failures too. Only a success
	// resets the time since which the endpoint has been failing.
	Refused bool
	// Failures is the number of failed attempts since the last success or, with it, since the last refusal. Error is the
	// code of the last one.
	Failures int
	Error    string
	// Gone means that the endpoint answered 410, which disables it.
	Gone bool
	// RetryAfter is the pause that the endpoint requested with Retry-After; 0 = none.
	RetryAfter time.Duration
	// Throttled means that the round ended because the endpoint throttles. Without RetryAfter the pause is twice the
	// previous one, at least 1 s, at most MaxThrottlePause. After a success, or if the last failure had no pause, it is 1 s.
	Throttled bool
	// Replay is the replay's progress; nil = none.
	Replay *ReplayProgress
	// ProbeAfter is the interval of probes. If an endpoint is up again that has been failing for this time, its retries are
	// due at once.
	ProbeAfter time.Duration
}

// ofOldURL returns the result of a round whose URL was replaced before the round was recorded. It says nothing about the
// new URL's health, and failed deliveries are due at the new URL at once, without a counted attempt.
func (r Result) ofOldURL() Result {
	r.Succeeded, r.Refused, r.Failures, r.Error, r.Gone, r.RetryAfter, r.Throttled = false, false, 0, "", false, 0, false
	r.New, r.Attempted = dueAgain(r.New), dueAgain(r.Attempted)
	return r
}

func dueAgain(all []Attempted) []Attempted {
	all = slices.Clone(all)
	for i := range all {
		if a := &all[i]; a.Status == Retrying || a.Status == Failed {
			if a.ScheduledAt == nil || a.Status == Failed { // the attempt counted
				a.Attempts = max(a.Attempts-1, 0)
			}
			*a = Attempted{Delivery: a.Delivery}
			a.Status, a.ScheduledAt = Retrying, nil
		}
	}
	return all
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

	// postponeSQL reverts hurrySQL for the deliveries of an endpoint that is down: otherwise it would get all of them
	// one after the other. It locks the rows that it finds by webhook_deliveries_retrying.
	postponeSQL = `
UPDATE webhook_deliveries SET next_at = scheduled_at
WHERE endpoint_id = $1 AND company_id = $2 AND status = 'RETRYING' AND scheduled_at > greatest(next_at, now())`

	// recoveredSQL is hurrySQL for an endpoint that is up again after failing for $3 ms or more. After a shorter time the
	// schedule suffices. An endpoint that fails for some events only is down and up in turn: without the limit, each event
	// that it accepts would make all open deliveries due.
	recoveredSQL = hurrySQL + ` AND EXISTS (SELECT FROM webhook_endpoints e WHERE e.id = $1 AND e.company_id = $2 AND e.failing_since <= now() - $3 * interval '1 ms')`

	// recordSQL locks the endpoint by primary key. The previous pause began at last_failure_at; not_before is NULL if a
	// success has followed. Time without events does not extend a pause.
	recordSQL = `
UPDATE webhook_endpoints SET
    feed_position = CASE WHEN ($3, $8::bigint) > (feed_position, feed_number) THEN $3 ELSE feed_position END,
    feed_number = CASE WHEN ($3, $8::bigint) > (feed_position, feed_number) THEN $8 ELSE feed_number END, failures = $4,
    failing_since = CASE WHEN $4 = 0 THEN NULL WHEN $5 THEN now() ELSE coalesce(failing_since, now()) END,
    last_success_at = CASE WHEN $5 THEN now() ELSE last_success_at END,
    last_failure_at = CASE WHEN $6 <> '' THEN now() ELSE last_failure_at END, last_error = coalesce(nullif($6, ''), last_error),
    not_before = CASE WHEN $7 > 0 THEN now() + $7 * interval '1 ms'
        WHEN $9 THEN now() + CASE WHEN $5 THEN interval '1 s' ELSE least(greatest(2 * (not_before - last_failure_at), interval '1 s'), $10 * interval '1 ms') END
        WHEN $5 THEN NULL ELSE not_before END, updated_at = now()
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
func (s *SenderStore) Record(ctx context.Context, l Lease, r Result, disableAfter time.Duration) (Recorded, error) {
	var after Recorded
	err := inTx(ctx, s.db, func(tx *sqlx.Tx) error {
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
		if r.Succeeded || r.Refused {
			failures = r.Failures
		}
		if err := reschedule(ctx, tx, before, r, failures); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, recordSQL, before.ID, before.CompanyID, r.Position, failures, r.Succeeded, r.Error, r.RetryAfter.Milliseconds(), r.Number,
			r.Throttled, MaxThrottlePause.Milliseconds()); err != nil {
			return err
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

// reschedule changes when the retries of an endpoint are due that is up again, or is down after the round.
func reschedule(ctx context.Context, tx *sqlx.Tx, before Endpoint, r Result, failures int) error {
	var err error
	switch {
	case failures >= DownFailures && r.Failures > 0:
		_, err = tx.ExecContext(ctx, postponeSQL, before.ID, before.CompanyID)
	case before.Down() && failures < DownFailures:
		_, err = tx.ExecContext(ctx, recoveredSQL, before.ID, before.CompanyID, r.ProbeAfter.Milliseconds())
	}
	return err
}
