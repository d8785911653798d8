package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

// Advance applies one transition by itself, for callers that have no neighbours. It waits
// at most 4 s for a row that another transaction has locked: then it is ErrAggregateBusy,
// and nothing was changed.
func (s *Store) Advance(ctx context.Context, t Transition) (Advanced, error) {
	t, err := t.encoded()
	if err != nil {
		return Advanced{}, err
	}
	results, err := repeat(func() ([]Advanced, error) {
		return advanceWaiting([]Transition{t}, aggregateWait, func(rows any, columns []any) error {
			return write(func(columns []any) error {
				return s.db.SelectContext(ctx, rows, advanceWaitingSQL, columns...)
			}, columns...)
		})
	})
	switch {
	case isLockTimeout(err):
		return Advanced{}, errors.Join(ErrAggregateBusy, err)
	case err != nil:
		return Advanced{}, err
	}
	return results[0], nil
}

// advanceSQL locks the emails' outbox rows by primary key, in id order, and reads
// them as they are under the lock; on that it decides. A row that another transaction has
// locked is left alone (SKIP LOCKED) and comes back as locked, so that no email of the group
// waits for it; advanceWaitingSQL, for a single caller, waits for it. So is, where $30 names its
// company, an email whose recipient (found and locked by primary key) another transaction has locked. Any
// other lock (of the log, the entry, a recipient otherwise, or a key that another transaction is
// inserting) ends the statement after $31 ms: then the group is written again. Then it writes,
// for those whose guard holds, the outbox row, the log (by primary key), the events
// (behind the newest one), the recipient (by primary key, in id order) and the dead
// letter. The lane's and company's rows, and the provider's gate, are read without a
// lock: pausing and shutting take effect for every claim that begins after them. An
// email whose lane is gone can still be ended.
//
// Of the logs' partitions only those are opened that the group's ids, from $26 to $27,
// may be in.
//
// A program that moves or cancels an email locks its row of outbox_aggregates first (found
// by outbox_aggregates_outbox), until its transaction ends. A transition that gives way
// takes a share of that row or leaves the email alone: a program that sits on its
// transaction must not hold up everybody in the group.
//
// The end of a mailing's email is written to its entry too (by primary key: they share
// their id). The mailing's own row is left alone, since thousands of emails per second
// would queue up for it: a loop counts. Only an email that leaves an end it had come
// to, which is a person's doing or late news, locks that row and has it counted again.
// So does an email of a PAUSED mailing that ends, once per count, because paused mailings
// are counted only after a change.
//
// What an email says about its recipient is merged per field (writePeopleSQL). One that is
// older than the rows of deleted recipients are kept (before $29) says nothing.
//
// The log, unlike the locked row, is read as it was when the statement began. If
// another transition committed while this one waited for the lock, then its events
// do not fit behind those of the other one, and Postgres refuses them: see isEventsKey.
// So nothing is ever decided on a log or a dead letter that is out of date.
//
// At its end, those that moved and those that did not are put one behind the other. Joined,
// since the planner expects one email, all that moved were read again for each of the group.
// Those that are locked are looked for, by primary key and without a lock, only if some
// email was not found.
const (
	advanceSQL        = advanceFoundSQL + ` SKIP LOCKED` + advanceMovedSQL
	advanceWaitingSQL = advanceFoundSQL + advanceMovedSQL
)

const advanceFoundSQL = `
WITH free AS MATERIALIZED (
    SELECT a.outbox_id
    FROM (SELECT * FROM unnest($1::uuid[], $28::bool[]) AS t(id, give_way) WHERE give_way LIMIT $25) t
    JOIN outbox_aggregates a ON a.outbox_id = t.id
    FOR SHARE OF a SKIP LOCKED
), free_people AS MATERIALIZED (
    SELECT r.id
    FROM (SELECT * FROM unnest($18::uuid[], $30::uuid[]) AS t(id, company_id) WHERE company_id IS NOT NULL LIMIT $25) t
    JOIN recipients r USING (id, company_id)
    FOR NO KEY UPDATE OF r SKIP LOCKED
), locked_people AS MATERIALIZED (
    SELECT r.id
    FROM (SELECT * FROM unnest($18::uuid[], $30::uuid[]) AS t(id, company_id) WHERE company_id IS NOT NULL LIMIT $25) t
    JOIN recipients r USING (id, company_id)
    WHERE r.id NOT IN (SELECT id FROM free_people)
), found AS MATERIALIZED (
    SELECT t.*, o.status AS was, o.attempts, o.throttles, o.next_at, o.expires_at, o.lease_until, o.cpf_cnpj_enc, lane.mailing_id,
           coalesce(o.claim_token = t.token, false) AS same_token,
           lane.paused_at IS NULL AND lane.held_at IS NULL AND coalesce(lane.parked_until <= now(), true)
               AND c.suspended_at IS NULL AND c.id IS NOT NULL AS open,
           coalesce(o.id = ` + gateProbe + `, false) AS probe,
           t.guard = 'claim' AND EXISTS (SELECT FROM suppressions s
                   WHERE s.company_id = o.company_id AND s.address = lower(o.payload ->> 'to')
                     AND (s.reason <> 'UNSUBSCRIBE' OR lane.mailing_id IS NOT NULL)) AS suppressed,
           o.body_erased_at IS NOT NULL AS erased, t.guard = 'replay' AND EXISTS (` + successorSQL + `) AS replaced,
           coalesce(l.event_seq, 0) AS seq, l.last_event
    FROM (SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::jsonb[], $6::bigint[], $7::bigint[], $8::text[], $9::bigint[], $10::bigint[],
                $11::bool[], $12::bool[], $13::text[], $14::text[], $15::text[], $16::bigint[], $17::bool[],
                $18::uuid[], $19::text[], $20::text[], $21::text[], $22::text[], $23::text[], $28::bool[], $30::uuid[])
    AS t(id, guard, token, status, events, add_attempts, add_throttles, waits, delay_ms, renew_ms,
         outcome_unknown, possible_duplicate, error_code, error_reason, ses_message_id, duration_ms, dead_letter,
         recipient_id, external_id, cpf_cnpj_hash, razao_social, nome, email, give_way, skipping)
          WHERE (NOT give_way OR id = ANY (ARRAY(SELECT outbox_id FROM free)))
            AND (skipping IS NULL OR (recipient_id = ANY (ARRAY(SELECT id FROM locked_people))) IS NOT TRUE)
            AND (SELECT set_config('lock_timeout', $31, true)) IS NOT NULL LIMIT $25) t
    JOIN email_outbox o ON o.id = t.id AND CASE WHEN t.id IS NOT NULL THEN o.target = 'email:send' END
    LEFT JOIN dispatch_lanes lane ON lane.id = o.lane_id
    LEFT JOIN companies c ON c.id = lane.company_id
    LEFT JOIN LATERAL (
        SELECT event_seq, last_event FROM email_logs
        WHERE outbox_id = o.id AND outbox_id >= ` + atStart + `$26` + end + ` AND outbox_id <= ` + atStart + `$27` + end + ` LIMIT 1
    ) l ON true
    ORDER BY o.id FOR UPDATE OF o`

const advanceMovedSQL = `
), moved AS (
    UPDATE email_outbox o SET
        status = f.status,
        attempts = CASE WHEN f.guard = 'replay' THEN 0 ELSE o.attempts + f.add_attempts END,
        throttles = CASE WHEN f.guard = 'replay' THEN 0 ELSE o.throttles + f.add_throttles END,
        next_at = CASE WHEN f.waits <> '' THEN now() + f.delay_ms * interval '1 ms' ELSE o.next_at END,
        enqueued_at = CASE f.waits WHEN 'queue' THEN coalesce(o.enqueued_at, now()) WHEN 'outbox' THEN NULL ELSE o.enqueued_at END,
        expires_at = CASE WHEN f.renew_ms > 0 THEN now() + f.renew_ms * interval '1 ms' ELSE o.expires_at END,
        last_error = coalesce(f.error_code || coalesce(': ' || f.error_reason, ''), o.last_error),
        processed_at = CASE WHEN f.status IN ('SENT', 'FAILED', 'EXPIRED', 'CANCELLED', 'SUPPRESSED') THEN now() END,
        claim_token = coalesce(f.token, o.claim_token),
        lease_until = CASE WHEN f.status = 'PROCESSING' THEN now() + $24 * interval '1 ms' END,
        outcome_unknown = (o.outcome_unknown OR f.outcome_unknown) AND f.guard <> 'feedback',
        possible_duplicate = o.possible_duplicate OR f.possible_duplicate OR (f.guard = 'replay' AND o.outcome_unknown),
        cpf_cnpj_enc = CASE WHEN f.recipient_id IS NULL THEN o.cpf_cnpj_enc END
    FROM found f
    WHERE o.id = f.id AND CASE f.guard
        WHEN 'claim' THEN f.was IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED') AND f.open AND (f.probe OR ` + gateIsOpen + `)
                      AND f.next_at <= now() + interval '1 s' AND f.expires_at > now() AND NOT f.suppressed
        WHEN 'attempt' THEN (f.was = 'PROCESSING' AND f.same_token) OR (f.status = 'SENT' AND f.was <> 'SENT')
                      OR (f.was = 'OUTCOME_UNKNOWN' AND f.same_token AND f.status IN ('FAILED', 'RETRY_SCHEDULED') AND NOT f.outcome_unknown)
        WHEN 'feedback' THEN f.was <> 'SENT'
        WHEN 'abandoned' THEN f.was = 'PROCESSING' AND f.same_token AND f.lease_until < now()
        WHEN 'unresolved' THEN f.was = 'OUTCOME_UNKNOWN' AND f.same_token AND f.next_at <= now()
        WHEN 'open' THEN f.was IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED')
        WHEN 'overdue' THEN f.was IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED') AND f.expires_at <= now()
        WHEN 'replay' THEN f.was IN ('FAILED', 'EXPIRED', 'CANCELLED') AND NOT f.erased AND NOT f.replaced
                       AND NOT EXISTS (SELECT FROM mailings m WHERE m.id = f.mailing_id AND m.status = 'CANCELLED')
        ELSE false END
    RETURNING o.id, o.company_id, o.request_id, o.payload, o.status, o.attempts, o.throttles, o.possible_duplicate, o.expires_at, o.created_at,
              f.events, f.seq, f.last_event, f.error_code, f.error_reason, f.ses_message_id, f.duration_ms, f.dead_letter,
              f.recipient_id, f.external_id, f.cpf_cnpj_hash, f.cpf_cnpj_enc, f.razao_social, f.nome, f.email,
              f.mailing_id, o.outcome_unknown, o.processed_at IS NOT NULL AS ended,
              f.was IN ('SENT', 'FAILED', 'EXPIRED', 'CANCELLED', 'SUPPRESSED') AS had_ended,
              f.same_token, f.erased, f.replaced, f.probe
), logged AS (
    INSERT INTO email_logs (outbox_id, company_id, recipient_id, recipient, subject, status, ses_message_id, error_code, error_reason,
                            attempts, throttles, duration_ms, request_id, external_id, tags, possible_duplicate, expires_at, created_at,
                            sent_at, failed_at, event_seq, last_event)
    SELECT m.id, m.company_id, coalesce(m.recipient_id, (m.payload #>> '{recipient,recipientId}')::uuid),
           m.payload ->> 'to', m.payload ->> 'subject', m.status, m.ses_message_id, m.error_code, m.error_reason,
           m.attempts, m.throttles, m.duration_ms, m.request_id, m.payload #>> '{recipient,externalId}',
           ARRAY(SELECT jsonb_array_elements_text(coalesce(m.payload -> 'tags', '[]'))), m.possible_duplicate, m.expires_at, m.created_at,
           CASE WHEN m.status = 'SENT' THEN now() END, CASE WHEN m.status = 'FAILED' THEN now() END,
           m.seq + jsonb_array_length(m.events), m.events #>> '{-1,type}'
    FROM moved m
    ON CONFLICT (outbox_id) DO UPDATE SET
        recipient_id = coalesce(excluded.recipient_id, email_logs.recipient_id),
        status = excluded.status,
        ses_message_id = coalesce(excluded.ses_message_id, email_logs.ses_message_id),
        error_code = CASE WHEN excluded.status = 'SENT' THEN NULL ELSE coalesce(excluded.error_code, email_logs.error_code) END,
        error_reason = CASE WHEN excluded.status = 'SENT' THEN NULL
                            WHEN excluded.error_code IS NULL THEN email_logs.error_reason ELSE excluded.error_reason END,
        attempts = excluded.attempts,
        throttles = excluded.throttles,
        duration_ms = coalesce(excluded.duration_ms, email_logs.duration_ms),
        possible_duplicate = excluded.possible_duplicate,
        expires_at = excluded.expires_at,
        sent_at = excluded.sent_at,
        failed_at = excluded.failed_at,
        event_seq = excluded.event_seq,
        last_event = excluded.last_event
), timeline AS (
    INSERT INTO email_events (email_log_id, seq, previous, type, metadata, created_at)
    SELECT m.id, m.seq + e.n,
           CASE WHEN e.n = 1 THEN m.last_event ELSE m.events -> (e.n - 2)::int ->> 'type' END,
           e.event ->> 'type', coalesce(nullif(e.event -> 'metadata', 'null'), '{}'), (e.event ->> 'at')::timestamptz
    FROM moved m CROSS JOIN LATERAL jsonb_array_elements(m.events) WITH ORDINALITY AS e(event, n)
), statement AS (
    SELECT m.recipient_id, m.company_id, m.id, m.external_id, m.cpf_cnpj_hash, m.cpf_cnpj_enc, m.razao_social, m.nome,
           coalesce(m.email, m.payload ->> 'to') AS email, m.email IS NOT NULL AS states_email
    FROM moved m WHERE m.recipient_id IS NOT NULL AND m.id >= $29` + writePeopleSQL + `
), dead AS (
    INSERT INTO dead_letters (id, company_id, mailing_id, outbox_id, target, email, reason, attempts, last_error, payload)
    SELECT gen_random_uuid(), m.company_id, m.mailing_id, m.id, 'email:send', m.payload ->> 'to', m.error_code, m.attempts, m.error_reason, m.payload
    FROM moved m WHERE m.dead_letter
), revived AS (
    UPDATE dead_letters d SET resolved_at = now(), updated_at = now(),
        resolution = CASE m.status WHEN 'SENT' THEN 'sent' ELSE 'retried' END,
        resolved_by = nullif(concat_ws(':', m.events #>> '{0,metadata,by}',
            coalesce(m.events #>> '{0,metadata,keyId}', m.events #>> '{0,metadata,operator}', m.events #>> '{0,metadata,mailingId}')), ''),
        replay_id = (m.events #>> '{0,metadata,replayId}')::uuid
    FROM moved m
    WHERE d.outbox_id = m.id AND d.resolved_at IS NULL AND m.status IN ('PENDING', 'SENT')
), entry AS (
    UPDATE mailing_entries e SET
        status = CASE WHEN m.ended THEN m.status ELSE 'QUEUED' END,
        outcome_unknown = m.status = 'FAILED' AND m.outcome_unknown,
        attempts = m.attempts,
        last_attempt = now(),
        external_id = coalesce(m.ses_message_id, e.external_id),
        updated_at = now()
    FROM moved m
    WHERE e.id = m.id AND m.mailing_id IS NOT NULL AND (m.ended OR m.had_ended)
), reopened AS (
    UPDATE mailings SET counted_at = NULL, updated_at = now(),
        status = CASE WHEN status = 'COMPLETED' AND EXISTS (SELECT FROM moved m WHERE m.mailing_id = mailings.id AND NOT m.ended)
                      THEN 'SENDING' ELSE status END
    WHERE id IN (SELECT m.mailing_id FROM moved m WHERE m.had_ended)
), paused AS (
    UPDATE mailings SET counted_at = NULL
    WHERE id IN (SELECT m.mailing_id FROM moved m WHERE m.ended AND NOT m.had_ended) AND status = 'PAUSED'
)
SELECT m.id, true AS applied, m.status, m.attempts, m.throttles, m.same_token, m.erased, m.replaced, m.probe, ` + gateShutTurn + ` AS shuts, false AS locked,
       m.company_id, m.request_id, m.mailing_id
FROM moved m
UNION ALL
SELECT f.id, false, f.was, f.attempts, f.throttles, f.same_token, f.erased, f.replaced, f.probe, ` + gateShutTurn + `, false, NULL, '', NULL
FROM found f WHERE f.id NOT IN (SELECT id FROM moved)
UNION ALL
SELECT o.id, false, '', 0, 0, false, false, false, false, 0, true, NULL, '', NULL
FROM (SELECT * FROM unnest($1::uuid[]) AS t(id) WHERE (SELECT count(*) FROM found) < $25 LIMIT $25) t
JOIN email_outbox o ON o.id = t.id AND CASE WHEN t.id IS NOT NULL THEN o.target = 'email:send' END
WHERE o.id NOT IN (SELECT id FROM found)`

// successorSQL is the email that took the place of the cancelled email o among those about
// one thing. It is found by outbox_aggregates_outbox and outbox_aggregates_pkey, for a
// replay alone: with both there would be two of them, and a cancel would find one.
const successorSQL = `
SELECT FROM outbox_aggregates a JOIN outbox_aggregates later USING (company_id, aggregate_type, aggregate_id, event_type)
WHERE a.outbox_id = o.id AND later.turn > a.turn`

// The constraints that a transition meets when its view of the log is out of date:
// the numbers of its events are taken, or they do not follow what was the last one.
// Run again, the statement sees the log as it is now.
const eventsPath = "email_events_path"

// isEventsKey: the primary key of a partition of email_events.
func isEventsKey(constraint string) bool {
	return strings.HasPrefix(constraint, "email_events_") && strings.HasSuffix(constraint, "_pkey")
}

// tried is what became of a transition in a group.
type tried struct {
	Advanced
	// rerun: the connection broke and the statement was run once more. An earlier run of it
	// may still be under way, and be what has locked the email.
	rerun bool
}

// advance applies the transitions of a group, and waits at most so long for a lock that is
// not of an outbox row.
func (s *Store) advance(ctx context.Context, ts []Transition, wait time.Duration) ([]tried, error) {
	runs := 0
	moved, err := advance(ts, wait, func(rows any, columns []any) (err error) {
		runs, err = writeCounted(func(columns []any) error { return s.advanceEmail.selectAll(ctx, rows, columns...) }, columns...)
		return err
	})
	if err != nil {
		return nil, err
	}
	results := make([]tried, len(moved))
	for i := range moved {
		results[i] = tried{moved[i], runs > 1}
	}
	return results, nil
}

// advanceIn applies one transition as a part of a transaction. One that lost a race is for
// the caller to repeat as a whole.
func advanceIn(ctx context.Context, tx *sqlx.Tx, t Transition) (Advanced, error) {
	t, err := t.encoded()
	if err != nil {
		return Advanced{}, err
	}
	results, err := advanceAllIn(ctx, tx, []Transition{t}, aggregateWait)
	if err != nil {
		return Advanced{}, err
	}
	return results[0], nil
}

// advanceAllIn is advanceIn for emails that differ.
func advanceAllIn(ctx context.Context, tx *sqlx.Tx, ts []Transition, wait time.Duration) ([]Advanced, error) {
	return advanceWaiting(ts, wait, func(rows any, columns []any) error {
		return translate(tx.SelectContext(ctx, rows, advanceWaitingSQL, columns...))
	})
}

// advanceWaiting waits at most so long for each lock.
func advanceWaiting(ts []Transition, wait time.Duration, run func(rows any, columns []any) error) ([]Advanced, error) {
	results, err := advance(ts, wait, run)
	for i := range results {
		// A row that is not there after the wait was deleted meanwhile.
		results[i].Locked = results[i].Locked && ts[i].GiveWay
	}
	return results, err
}
