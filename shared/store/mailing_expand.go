package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/email"
)

// countLaneSQL counts along email_outbox_lane_claim, and stops at $2. It locks nothing.
const countLaneSQL = `
SELECT count(*) FROM (
    SELECT FROM email_outbox WHERE lane_id = $1 AND status IN ('PENDING', 'RETRY_SCHEDULED') LIMIT $2
) waiting`

// CountLane is how many rows of a lane wait to be sent, limit at most.
func (s *Store) CountLane(ctx context.Context, lane int64, limit int) (int, error) {
	var n int
	if err := s.db.GetContext(ctx, &n, countLaneSQL, lane, limit); err != nil {
		return 0, fmt.Errorf("count lane: %w", translate(err))
	}
	return n, nil
}

// ExpandableEntry is an entry in the order of its mailing. Only those that are Pending
// become emails.
type ExpandableEntry struct {
	ID          uuid.UUID      `db:"id"`
	Pending     bool           `db:"pending"`
	Email       string         `db:"email"`
	Token       string         `db:"token"`
	Fields      pq.StringArray `db:"fields"`
	Nome        string         `db:"nome"`
	RazaoSocial string         `db:"razao_social"`
	ExternalID  string         `db:"recipient_external_id"`
	CPFCNPJHash string         `db:"cpf_cnpj_hash"`
}

// alongKeySQL keeps a transaction's statements to an index's own order. A list of the
// next entries is wanted of a table that has just grown by a million rows, of which the
// planner may not have heard: it would collect them all and sort them, for each batch.
const alongKeySQL = `SET LOCAL enable_bitmapscan = off`

// nextEntriesSQL reads a range of the primary key of mailing_entries, in its order, and
// locks nothing. Entries of mailings that were uploaded at the same time lie in between;
// IS TRUE keeps the comparison from being answered by mailing_entries_address.
const nextEntriesSQL = `
SELECT id, status = 'PENDING' AS pending, email, token, fields, coalesce(nome, '') AS nome, coalesce(razao_social, '') AS razao_social,
       coalesce(recipient_external_id, '') AS recipient_external_id, coalesce(cpf_cnpj_hash, '') AS cpf_cnpj_hash
FROM mailing_entries
WHERE id >= $2 AND id <= $3 AND id <> $4 AND (mailing_id = $1) IS TRUE
ORDER BY id LIMIT $5`

// NextEntries lists at most limit entries behind the job's cursor.
func (s *Store) NextEntries(ctx context.Context, job *MailingJob, limit int) ([]ExpandableEntry, error) {
	from := job.ExpandedTo
	if from == uuid.Nil {
		from = job.FirstEntry
	}
	var entries []ExpandableEntry
	err := s.inTx(ctx, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, alongKeySQL); err != nil {
			return translate(err)
		}
		return translate(tx.SelectContext(ctx, &entries, nextEntriesSQL, job.ID, from, job.LastEntry, job.ExpandedTo, limit))
	})
	if err != nil {
		return nil, fmt.Errorf("list entries: %w", err)
	}
	return entries, nil
}

// ExpandedEntry is what becomes of an entry: an email, or INVALID.
type ExpandedEntry struct {
	ID            uuid.UUID
	InvalidReason string // "" = it becomes an email
	Details       string // why it is invalid
	RecipientID   uuid.UUID
	Job           email.SendJob // Attempt and EnqueuedAt are the dispatcher's to fill in

	payload []byte
}

// Expansion is one step of a job, and one commit.
type Expansion struct {
	Entries []ExpandedEntry // of those that were pending
	// To is the last entry that was read, Lines how many of the accepted ones were; uuid.Nil
	// and 0 leave the cursor where it is.
	To    uuid.UUID
	Lines int
	// Finished: To is the mailing's last entry. It is in SENDING from here on.
	Finished bool
	// Continue lets go of the mailing and leaves the rest to another job.
	Continue *Continuation
	// Waiting says why that job waits; the zero one = for nothing that is worth telling.
	Waiting Waiting
	// NearQuota: the emails may exceed the day's quota, which is a *QuotaError then.
	NearQuota bool
	// NoNewPeople: as many recipients are there as may. An email to somebody new does not
	// name its recipient, and is sent.
	NoNewPeople bool
}

// Continuation is the job that goes on.
type Continuation struct {
	ID    uuid.UUID // of its outbox row, UUIDv7
	Delay time.Duration
}

// noDeadline stands in for the deadline that an email of a mailing gets with its first
// attempt. Until then it waits for its turn, or for whoever paused the mailing, and a
// large mailing may take days. Postgres' infinity is nothing that Go's time can hold.
const noDeadline = 10 * 365 * 24 * time.Hour

// expandSQL locks the mailing's row (by primary key), recipients and entries (by primary
// key, in id order) and writes the emails. Everything hangs on the hold and on the
// cursor, so no entry is expanded twice however many jobs are at it; that entry and
// email share their id would keep the second email out in any case.
//
// What an entry says about its recipient is merged per field (writePeopleSQL); it was
// accepted when the list was uploaded. And a list does not bring back a deleted recipient:
// such an email names its recipientId, so that the worker fails it where its tenant can see
// it. After an erasure (`gatewayctl person erase`) a list that is uploaded later makes a new
// recipient. A list that was uploaded longer ago than rows of deleted recipients are kept
// (before $18) makes no new ones, nor does one of a company that has as many as it may
// ($19): the email of such an entry does not name its recipient, and is sent.
const expandSQL = `
WITH mailing AS (
    UPDATE mailings SET
        status = CASE WHEN $7 THEN 'SENDING' WHEN $9::uuid IS NOT NULL THEN 'QUEUED' ELSE status END,
        expanded_to = coalesce($5, expanded_to),
        processed_lines = processed_lines + $6,
        expanded_at = CASE WHEN $7 THEN now() ELSE expanded_at END,
        last_attempt = CASE WHEN $7 OR $9::uuid IS NOT NULL THEN NULL ELSE now() END,
        generation = generation + CASE WHEN $9::uuid IS NOT NULL THEN 1 ELSE 0 END,
        attempts = 0, error_message = NULL, updated_at = now(), waiting_for = nullif($20, ''), waiting_until = $21
    WHERE ` + heldSQL + ` AND expanded_to IS NOT DISTINCT FROM $4
    RETURNING *
), entry AS MATERIALIZED (
    SELECT t.*, m.company_id, m.request_id, m.sender, m.delivery, l.id AS lane_id,
           e.recipient_external_id, e.cpf_cnpj_hash, e.cpf_cnpj_enc, e.razao_social, e.nome, e.email,
           r.deleted_at IS NOT NULL AND (r.email <> '` + ErasedAddress + `' OR t.id < r.deletion_id) AS deleted, (t.id < $18 OR $19) AND r.id IS NULL AS nobody
    FROM mailing m
    CROSS JOIN (SELECT * FROM unnest($11::uuid[], $12::text[], $13::text[], $14::uuid[], $15::jsonb[])
                AS t(id, invalid_reason, details, recipient_id, payload) LIMIT $16) t
    JOIN mailing_entries e ON e.id = t.id AND e.status = 'PENDING'
    LEFT JOIN dispatch_lanes l ON l.company_id = m.company_id AND l.queue = 'email:send:low' AND l.mailing_id = m.id
    LEFT JOIN recipients r ON r.id = t.recipient_id
), statement AS (
    SELECT recipient_id, company_id, id, recipient_external_id AS external_id, cpf_cnpj_hash, cpf_cnpj_enc, razao_social, nome, email, true AS states_email
    FROM entry WHERE invalid_reason IS NULL AND NOT deleted AND NOT nobody` + writePeopleSQL + ` AND (recipients.deleted_at IS NULL OR recipients.email = '` + ErasedAddress + `')
), outbox AS (
    INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, priority, delivery, expires_at)
    SELECT id, company_id, lane_id, request_id,
           CASE WHEN deleted THEN jsonb_set(payload, '{recipient,recipientId}', to_jsonb(recipient_id))
                WHEN nobody THEN payload #- '{recipient,recipientId}' ELSE payload END,
           sender, $17, delivery, now() + $8 * interval '1 ms'
    FROM entry WHERE invalid_reason IS NULL
    ORDER BY id
    ON CONFLICT (id) DO NOTHING
), marked AS (
    UPDATE mailing_entries e SET
        status = CASE WHEN n.invalid_reason IS NULL THEN 'QUEUED' ELSE 'INVALID' END,
        invalid_reason = n.invalid_reason,
        validation_details = n.details,
        last_attempt = CASE WHEN n.invalid_reason IS NULL THEN e.last_attempt ELSE now() END,
        recipient_id = CASE WHEN n.invalid_reason IS NULL THEN n.recipient_id END,
        cpf_cnpj_enc = NULL,
        updated_at = now()
    FROM entry n WHERE e.id = n.id
), next AS (
    SELECT m.*, $9::uuid AS job_id, $10::bigint AS delay_ms FROM mailing m
), job AS (` + insertJobSQL + `
    ON CONFLICT (id) DO NOTHING
)
SELECT last_attempt, (SELECT count(*) FROM entry WHERE invalid_reason IS NULL) AS queued FROM mailing`

// Expand takes one step: entries become emails, the cursor moves and the heartbeat is
// written, or nothing at all happens because the hold is lost (false). queued is how
// many became emails. After a step that finishes or continues, the job holds nothing.
func (s *Store) Expand(ctx context.Context, job *MailingJob, x Expansion) (queued int, held bool, err error) {
	for i := range x.Entries {
		encoded, err := json.Marshal(x.Entries[i].Job)
		if err != nil {
			return 0, false, fmt.Errorf("encode job: %w", err)
		}
		x.Entries[i].payload = withoutEscapedNUL(encoded)
	}
	var jobID *uuid.UUID
	var delay time.Duration
	if x.Continue != nil {
		jobID, delay = &x.Continue.ID, x.Continue.Delay
	}
	columns := append([]any{
		job.ID, job.Generation, job.Heartbeat, optionalUUID(job.ExpandedTo), optionalUUID(x.To), x.Lines, x.Finished,
		noDeadline.Milliseconds(), jobID, delay.Milliseconds(),
	}, entryColumns(x.Entries)...)
	columns = append(columns, x.NoNewPeople, string(x.Waiting.For), sql.NullTime{Time: x.Waiting.Until, Valid: !x.Waiting.Until.IsZero()})
	steps, err := repeat(func() (steps []expanded, err error) {
		if x.NearQuota {
			return s.expandWithinQuota(ctx, job.CompanyID, int64(x.emails()), columns)
		}
		// write marks the first parameter, so each try has its own list of them.
		err = write(func(args []any) error {
			steps = nil
			return s.db.SelectContext(ctx, &steps, expandSQL, args...)
		}, slices.Clone(columns)...)
		return steps, err
	})
	switch {
	case err != nil:
		return 0, false, fmt.Errorf("expand mailing: %w", err)
	case len(steps) == 0:
		return 0, false, nil
	}
	if x.To != uuid.Nil {
		job.ExpandedTo = x.To
	}
	if steps[0].Heartbeat != nil {
		job.Heartbeat = *steps[0].Heartbeat
	}
	return steps[0].Queued, true, nil
}

// expandWithinQuota takes a step in a transaction that has locked the company's quotas,
// before it locks the mailing.
func (s *Store) expandWithinQuota(ctx context.Context, company uuid.UUID, emails int64, columns []any) ([]expanded, error) {
	return withQuotas(ctx, s, func(tx *sqlx.Tx) (steps []expanded, err error) {
		if err := takeFrom(ctx, tx, company, demand{QuotaEmailsPerDay: emails}, false); err != nil {
			return nil, err
		}
		return steps, translate(tx.SelectContext(ctx, &steps, expandSQL, columns...))
	})
}

// emails is how many of the entries become emails.
func (x *Expansion) emails() (n int) {
	for _, e := range x.Entries {
		if e.InvalidReason == "" {
			n++
		}
	}
	return n
}

// expanded is what a step leaves: no heartbeat if it let go of the mailing.
type expanded struct {
	Heartbeat *time.Time `db:"last_attempt"`
	Queued    int        `db:"queued"`
}

// entryColumns turns entries into one array per column of t, how many there are, the
// priority of their emails, and the first id that may make a recipient.
func entryColumns(entries []ExpandedEntry) []any {
	return []any{
		uuids(entries, func(e *ExpandedEntry) uuid.UUID { return e.ID }),
		optionalTexts(entries, func(e *ExpandedEntry) string { return e.InvalidReason }),
		optionalTexts(entries, func(e *ExpandedEntry) string { return e.Details }),
		uuids(entries, func(e *ExpandedEntry) uuid.UUID { return e.RecipientID }),
		jsonbs(entries, func(e *ExpandedEntry) []byte { return e.payload }),
		len(entries),
		email.MailingPriority,
		peopleFrom(),
	}
}

func optionalUUID(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}
