package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/email"
)

// Guard says which emails a transition may move; all others stay as they are.
type Guard string

const (
	// GuardClaim is the fence before the provider call: PENDING, ENQUEUED or
	// RETRY_SCHEDULED, due within a second, not expired, lane and company open.
	// Only one task can win it per attempt, whatever the queue delivers.
	GuardClaim Guard = "claim"
	// GuardAttempt is the end of an attempt: PROCESSING under the transition's own
	// token. An acceptance (SENT) passes from every other status too, because the
	// provider's yes is a fact; a stale attempt's refusal changes nothing.
	GuardAttempt Guard = "attempt"
	// GuardOpen is a stop from outside: PENDING, ENQUEUED or RETRY_SCHEDULED.
	GuardOpen Guard = "open"
	// GuardOverdue is GuardOpen for an email past its deadline.
	GuardOverdue Guard = "overdue"
	// GuardReplay is a person's second chance: FAILED, EXPIRED or CANCELLED.
	GuardReplay Guard = "replay"
)

// lease is how long a claim holds. It covers the provider's 30 s and our own
// writes; less than 31 s left before the call means giving the email back.
const lease = 60 * time.Second

// Transition moves one email to a status and writes, in the same commit, its log,
// its events and, when it gave up, its dead letter. Nothing else sets the status
// of an email that has events.
type Transition struct {
	ID     uuid.UUID
	Guard  Guard
	Token  uuid.UUID // the attempt: becomes the claim with GuardClaim, must be it with GuardAttempt
	Status email.Status
	Events []email.Event

	AddAttempts  int           // +1 claims a try, −1 gives it back
	AddThrottles int           // +1: the try ended in a quota and is not counted
	Delay        time.Duration // next_at = now + Delay, when Status waits for something
	Renew        time.Duration // > 0: counters to zero and a new deadline this far away

	OutcomeUnknown    bool // sticky
	PossibleDuplicate bool // sticky

	ErrorCode, ErrorReason string
	SESMessageID           string
	Duration               time.Duration // of the attempt
	Recipient              *Recipient    // the person to write down with a claim; its CPFCNPJ comes from the outbox row
	DeadLetter             bool
}

// Advanced is what became of a Transition.
type Advanced struct {
	Applied bool
	// Status is the email's status now; "" if there is no such email.
	Status   email.Status
	Attempts int
	// Throttles of those attempts ended in a quota.
	Throttles int
	// LeaseLeft is how long a won claim holds.
	LeaseLeft time.Duration
	// SameToken says that the row's claim is the transition's own: with Applied
	// false, an earlier try of the same write went through.
	SameToken bool
}

// Advancer applies transitions, many at a time.
type Advancer struct {
	group *Group[Transition, Advanced]
}

// NewAdvancer makes an Advancer on the store's connections.
func (s *Store) NewAdvancer() *Advancer {
	return &Advancer{group: NewGroup(
		func(t Transition) string { return t.ID.String() },
		func(t Transition) int { return 1024 + len(t.ErrorReason) }, // ids, numbers and events make about 1 KiB
		s.advance,
	)}
}

// Advance applies one transition. Its errors are the database's; a guard that did
// not hold is Applied == false.
func (a *Advancer) Advance(ctx context.Context, t Transition) (Advanced, error) {
	return a.group.Do(ctx, t)
}

// Close waits for the groups under way.
func (a *Advancer) Close() { a.group.Wait() }

// Advance applies one transition by itself, for callers that have no neighbours.
func (s *Store) Advance(ctx context.Context, t Transition) (Advanced, error) {
	results, err := s.advance(ctx, []Transition{t})
	if err != nil {
		return Advanced{}, err
	}
	return results[0], nil
}

// advanceSQL locks the emails' outbox rows by primary key, in id order, reads them
// as they are after any wait for the lock, and decides on that. Then it writes, for
// those whose guard holds, the outbox row, the log (by primary key), the events
// (behind the newest one), the recipient (by primary key, in id order) and the dead
// letter. The lane's and company's rows are read without a lock: pausing takes
// effect for every claim that begins after it.
const advanceSQL = `
WITH given AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::jsonb[], $6::int[], $7::int[], $8::bigint[], $9::bigint[],
                         $10::bool[], $11::bool[], $12::text[], $13::text[], $14::text[], $15::bigint[], $16::bool[],
                         $17::uuid[], $18::text[], $19::text[], $20::text[], $21::text[], $22::text[])
    AS t(id, guard, token, status, events, add_attempts, add_throttles, delay_ms, renew_ms,
         outcome_unknown, possible_duplicate, error_code, error_reason, ses_message_id, duration_ms, dead_letter,
         recipient_id, external_id, cpf_cnpj_hash, razao_social, nome, email)
), want AS (
    SELECT given.*, row_number() OVER () AS n FROM given
), row AS MATERIALIZED (
    SELECT o.id, o.company_id, o.lane_id, o.status, o.attempts, o.throttles, o.next_at, o.expires_at, o.claim_token, o.cpf_cnpj_enc
    FROM email_outbox o WHERE o.id = ANY ($1::uuid[]) AND o.target = 'email:send'
    ORDER BY o.id FOR UPDATE
), pass AS MATERIALIZED (
    SELECT w.*, r.cpf_cnpj_enc, coalesce(l.event_seq, 0) AS seq, l.last_event
    FROM want w
    JOIN row r ON r.id = w.id
    JOIN dispatch_lanes lane ON lane.id = r.lane_id
    JOIN companies c ON c.id = r.company_id
    LEFT JOIN email_logs l ON l.outbox_id = w.id
    WHERE CASE w.guard
        WHEN 'claim' THEN r.status IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED')
                      AND r.next_at <= now() + interval '1 s' AND r.expires_at > now()
                      AND lane.paused_at IS NULL AND coalesce(lane.parked_until <= now(), true) AND c.suspended_at IS NULL
        WHEN 'attempt' THEN (r.status = 'PROCESSING' AND r.claim_token = w.token) OR (w.status = 'SENT' AND r.status <> 'SENT')
        WHEN 'open' THEN r.status IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED')
        WHEN 'overdue' THEN r.status IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED') AND r.expires_at <= now()
        WHEN 'replay' THEN r.status IN ('FAILED', 'EXPIRED', 'CANCELLED')
        ELSE false END
), moved AS (
    UPDATE email_outbox o SET
        status = p.status,
        attempts = CASE WHEN p.renew_ms > 0 THEN 0 ELSE o.attempts + p.add_attempts END,
        throttles = CASE WHEN p.renew_ms > 0 THEN 0 ELSE o.throttles + p.add_throttles END,
        next_at = CASE WHEN p.delay_ms IS NULL THEN o.next_at ELSE now() + p.delay_ms * interval '1 ms' END,
        expires_at = CASE WHEN p.renew_ms > 0 THEN now() + p.renew_ms * interval '1 ms' ELSE o.expires_at END,
        last_error = coalesce(p.error_code || coalesce(': ' || p.error_reason, ''), o.last_error),
        processed_at = CASE WHEN p.status IN ('SENT', 'FAILED', 'EXPIRED', 'CANCELLED', 'SUPPRESSED') THEN now() END,
        claim_token = coalesce(p.token, o.claim_token),
        lease_until = CASE WHEN p.status = 'PROCESSING' THEN now() + $23 * interval '1 ms' END,
        outcome_unknown = o.outcome_unknown OR p.outcome_unknown,
        possible_duplicate = o.possible_duplicate OR p.possible_duplicate OR (p.guard = 'replay' AND o.outcome_unknown),
        cpf_cnpj_enc = CASE WHEN p.recipient_id IS NULL THEN o.cpf_cnpj_enc END
    FROM pass p WHERE o.id = p.id
    RETURNING o.id, o.company_id, o.request_id, o.payload, o.status, o.attempts, o.throttles, o.possible_duplicate, o.expires_at, o.created_at
), logged AS (
    INSERT INTO email_logs (outbox_id, company_id, recipient_id, recipient, subject, status, ses_message_id, error_code, error_reason,
                            attempts, throttles, duration_ms, request_id, external_id, tags, possible_duplicate, expires_at, created_at,
                            sent_at, failed_at, event_seq, last_event)
    SELECT m.id, m.company_id, coalesce(p.recipient_id, (m.payload #>> '{recipient,recipientId}')::uuid),
           m.payload ->> 'to', m.payload ->> 'subject', m.status, p.ses_message_id, p.error_code, p.error_reason,
           m.attempts, m.throttles, p.duration_ms, m.request_id, m.payload #>> '{recipient,externalId}',
           ARRAY(SELECT jsonb_array_elements_text(coalesce(m.payload -> 'tags', '[]'))), m.possible_duplicate, m.expires_at, m.created_at,
           CASE WHEN m.status = 'SENT' THEN now() END, CASE WHEN m.status = 'FAILED' THEN now() END,
           p.seq + jsonb_array_length(p.events), p.events #>> '{-1,type}'
    FROM moved m JOIN pass p USING (id)
    ON CONFLICT (outbox_id) DO UPDATE SET
        recipient_id = coalesce(excluded.recipient_id, email_logs.recipient_id),
        status = excluded.status,
        ses_message_id = coalesce(excluded.ses_message_id, email_logs.ses_message_id),
        error_code = CASE WHEN excluded.status = 'SENT' THEN NULL ELSE coalesce(excluded.error_code, email_logs.error_code) END,
        error_reason = CASE WHEN excluded.status = 'SENT' THEN NULL ELSE coalesce(excluded.error_reason, email_logs.error_reason) END,
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
    SELECT p.id, p.seq + e.n,
           CASE WHEN e.n = 1 THEN p.last_event ELSE p.events #>> ARRAY[(e.n - 2)::text, 'type'] END,
           e.event ->> 'type', e.event -> 'metadata', (e.event ->> 'at')::timestamptz
    FROM pass p CROSS JOIN LATERAL jsonb_array_elements(p.events) WITH ORDINALITY AS e(event, n)
), person AS (
    INSERT INTO recipients (id, company_id, external_id, cpf_cnpj_hash, cpf_cnpj_enc, razao_social, nome, email)
    SELECT DISTINCT ON (p.recipient_id) p.recipient_id, m.company_id, p.external_id, p.cpf_cnpj_hash, p.cpf_cnpj_enc, p.razao_social, p.nome, p.email
    FROM pass p JOIN moved m USING (id) WHERE p.recipient_id IS NOT NULL
    ORDER BY p.recipient_id, p.id DESC
    ON CONFLICT (id) DO UPDATE SET
        external_id = coalesce(excluded.external_id, recipients.external_id),
        cpf_cnpj_hash = coalesce(excluded.cpf_cnpj_hash, recipients.cpf_cnpj_hash),
        cpf_cnpj_enc = coalesce(excluded.cpf_cnpj_enc, recipients.cpf_cnpj_enc),
        razao_social = coalesce(excluded.razao_social, recipients.razao_social),
        nome = coalesce(excluded.nome, recipients.nome),
        email = excluded.email,
        deleted_at = NULL,
        updated_at = now()
), dead AS (
    INSERT INTO dead_letters (id, company_id, outbox_id, target, email, reason, attempts, last_error, payload)
    SELECT gen_random_uuid(), m.company_id, m.id, 'email:send', m.payload ->> 'to', p.error_code, m.attempts, p.error_reason, m.payload
    FROM moved m JOIN pass p USING (id) WHERE p.dead_letter
), revived AS (
    UPDATE dead_letters d SET resolved_at = now(), updated_at = now()
    FROM moved m JOIN pass p USING (id)
    WHERE d.outbox_id = m.id AND d.resolved_at IS NULL AND NOT p.dead_letter AND m.status IN ('PENDING', 'SENT')
)
SELECT p.n IS NOT NULL AS applied, coalesce(m.status, r.status, '') AS status,
       coalesce(m.attempts, r.attempts, 0) AS attempts, coalesce(m.throttles, r.throttles, 0) AS throttles,
       coalesce(r.claim_token = w.token, false) AS same_token
FROM want w
LEFT JOIN row r ON r.id = w.id
LEFT JOIN pass p ON p.n = w.n
LEFT JOIN moved m ON m.id = p.id
ORDER BY w.n`

func (s *Store) advance(ctx context.Context, ts []Transition) ([]Advanced, error) {
	begun := time.Now()
	columns, err := transitionColumns(ts)
	if err != nil {
		return nil, err
	}
	var rows []struct {
		Applied   bool         `db:"applied"`
		Status    email.Status `db:"status"`
		Attempts  int          `db:"attempts"`
		Throttles int          `db:"throttles"`
		SameToken bool         `db:"same_token"`
	}
	if err := s.db.SelectContext(ctx, &rows, advanceSQL, append(columns, lease.Milliseconds())...); err != nil {
		return nil, fmt.Errorf("advance emails: %w", writeError(err))
	}
	// The lease began on Postgres's clock somewhere after begun on ours: counting
	// from begun never believes in more of it than there is.
	left := lease - time.Since(begun)
	results := make([]Advanced, len(rows))
	for i, r := range rows {
		results[i] = Advanced{
			Applied: r.Applied, Status: r.Status, Attempts: r.Attempts, Throttles: r.Throttles,
			LeaseLeft: left, SameToken: r.SameToken,
		}
	}
	return results, nil
}

// transitionColumns turns transitions into one array per column of want.
func transitionColumns(ts []Transition) ([]any, error) {
	n := len(ts)
	var (
		ids, guards, statuses, events      = make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		tokens, codes, reasons, messageIDs = make([]sql.NullString, n), make([]sql.NullString, n), make([]sql.NullString, n), make([]sql.NullString, n)
		attempts, throttles, renewals      = make([]int64, n), make([]int64, n), make([]int64, n)
		delays, durations                  = make([]sql.NullInt64, n), make([]sql.NullInt64, n)
		unknown, duplicate, dead           = make([]bool, n), make([]bool, n), make([]bool, n)
		people                             [6][]sql.NullString
	)
	for c := range people {
		people[c] = make([]sql.NullString, n)
	}
	for i, t := range ts {
		encoded, err := json.Marshal(t.Events)
		if err != nil {
			return nil, fmt.Errorf("encode events: %w", err)
		}
		ids[i], guards[i], statuses[i], events[i] = t.ID.String(), string(t.Guard), string(t.Status), string(encoded)
		if t.Token != uuid.Nil {
			tokens[i] = optional(t.Token.String())
		}
		attempts[i], throttles[i], renewals[i] = int64(t.AddAttempts), int64(t.AddThrottles), t.Renew.Milliseconds()
		// A waiting status has a due time; every other keeps the one it had.
		waits := t.Status == email.Pending || t.Status == email.RetryScheduled
		delays[i] = sql.NullInt64{Int64: t.Delay.Milliseconds(), Valid: waits}
		durations[i] = sql.NullInt64{Int64: t.Duration.Milliseconds(), Valid: t.Duration > 0}
		unknown[i], duplicate[i], dead[i] = t.OutcomeUnknown, t.PossibleDuplicate, t.DeadLetter
		codes[i], reasons[i], messageIDs[i] = optional(t.ErrorCode), optional(t.ErrorReason), optional(t.SESMessageID)
		if r := t.Recipient; r != nil {
			for c, value := range []string{r.ID.String(), r.ExternalID, r.CPFCNPJHash, r.RazaoSocial, r.Nome, r.Email} {
				people[c][i] = optional(value)
			}
		}
	}
	columns := []any{
		pq.Array(ids), pq.Array(guards), pq.Array(tokens), pq.Array(statuses), pq.Array(events),
		pq.Array(attempts), pq.Array(throttles), pq.Array(delays), pq.Array(renewals), pq.Array(unknown), pq.Array(duplicate),
		pq.Array(codes), pq.Array(reasons), pq.Array(messageIDs), pq.Array(durations), pq.Array(dead),
	}
	for _, column := range people {
		columns = append(columns, pq.Array(column))
	}
	return columns, nil
}

// optional is NULL for "".
func optional(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }
