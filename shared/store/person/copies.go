package person

import (
	"context"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/recipient"
)

// withoutPersonSQL is the payload of t without the addresses $3 in cc, bcc and replyTo. It also
// removes tags that match the pattern $4 of these addresses, and replaces the matches in headers.
const withoutPersonSQL = `(CASE jsonb_typeof(t.payload) WHEN 'object' THEN (
        SELECT coalesce(jsonb_object_agg(p.key, CASE
                   WHEN p.key IN ('cc', 'bcc') AND jsonb_typeof(p.value) = 'array'
                       THEN (SELECT coalesce(jsonb_agg(c), '[]') FROM jsonb_array_elements(p.value) c WHERE lower(c #>> '{}') <> ALL ($3::text[]))
                   WHEN p.key = 'tags' AND jsonb_typeof(p.value) = 'array'
                       THEN (SELECT coalesce(jsonb_agg(c), '[]') FROM jsonb_array_elements(p.value) c WHERE c #>> '{}' !~* $4)
                   WHEN p.key = 'headers' AND jsonb_typeof(p.value) = 'object'
                       THEN (SELECT coalesce(jsonb_object_agg(h.key, regexp_replace(h.value, $4, '` + recipient.ErasedAddress + `', 'gi')), '{}') FROM jsonb_each_text(p.value) h)
                   ELSE p.value END), '{}')
        FROM jsonb_each(t.payload) p WHERE NOT (p.key = 'replyTo' AND (lower(p.value #>> '{}') = ANY ($3::text[])) IS TRUE))
    ELSE t.payload END)`

// scrubSQL is the end of a call of regexp_replace that replaces the addresses in a text.
const scrubSQL = `, $4::text, '` + recipient.ErasedAddress + `', 'gi')`

// These statements find rows by primary key. eraseCopiesSQL locks all outbox rows that it is given, in the
// order of their ids, the others lock the rows that they change. An email whose attempt may still be recorded
// stays unchanged: the answer to it may name the person again, and the search would not find an email
// without the address. Apart from the removed
// addresses, such an email is sent unchanged; if the sender has the person's address, the company's
// default sender replaces it (companies_pkey). The timeline is changed separately because it outlives
// the outbox row. The dispatcher is requested to remove the task with the old payload, which Redis
// may still hold, or archive later.
const (
	eraseCopiesSQL = `
WITH held AS MATERIALIZED (
    SELECT o.id, o.status IN ('PROCESSING', 'OUTCOME_UNKNOWN') AS busy FROM email_outbox o WHERE o.id = ANY ($2::uuid[]) AND o.company_id = $1 ORDER BY o.id FOR UPDATE
), free AS (
    SELECT i.id FROM unnest($2::uuid[]) AS i (id) WHERE NOT EXISTS (SELECT FROM held WHERE held.id = i.id AND held.busy)
), changed AS (
    UPDATE email_outbox t SET payload = ` + withoutPersonSQL + `, last_error = regexp_replace(t.last_error` + scrubSQL + `, sender = ` + otherSenderSQL + `
    FROM held WHERE t.id = held.id AND NOT held.busy
      AND (t.payload, t.last_error, t.sender) IS DISTINCT FROM (` + withoutPersonSQL + `, regexp_replace(t.last_error` + scrubSQL + `, ` + otherSenderSQL + `)
    RETURNING t.id
), tasks AS (
    INSERT INTO erased_tasks (outbox_id, erasure_id, company_id, final)
    SELECT id, $5, $1, false FROM changed` + askTasksSQL + `
), logs AS (
    UPDATE email_logs l SET error_reason = regexp_replace(l.error_reason` + scrubSQL + `, tags = ARRAY(SELECT tag FROM unnest(l.tags) AS tag WHERE tag !~* $4)
    FROM free WHERE l.outbox_id = free.id AND l.company_id = $1 AND concat_ws(' ', l.error_reason, l.tags) ~* $4
    RETURNING l.outbox_id
), events AS (
    UPDATE email_events e SET metadata = ` + safeMetadataSQL + ` FROM free JOIN email_logs l ON l.outbox_id = free.id
    WHERE l.company_id = $1 AND e.email_log_id = l.outbox_id AND e.metadata::text ~* ANY ($6::text[])
    RETURNING l.outbox_id
)
SELECT (SELECT coalesce(array_agg(id), '{}') FROM held WHERE busy) AS busy, (SELECT coalesce(array_agg(id), '{}') FROM changed) AS emails, (SELECT coalesce(array_agg(outbox_id), '{}') FROM logs) AS logs,
       (SELECT coalesce(array_agg(outbox_id), '{}') FROM events) AS events`

	// otherSenderSQL is the sender of the outbox row t. If the erased person was the sender, it is
	// the company's default sender.
	otherSenderSQL = `CASE WHEN lower(coalesce(substring(t.sender FROM '<([^<>]+)>\s*$'), t.sender)) = ANY ($3::text[])
            THEN (SELECT c.default_from FROM companies c WHERE c.id = $1) ELSE t.sender END`

	// Like the search, it reads the company of a task without an outbox row from the payload.
	eraseLetterCopiesSQL = `
UPDATE dead_letters t SET payload = ` + withoutPersonSQL + `, last_error = regexp_replace(t.last_error` + scrubSQL + `,
    resolution_note = regexp_replace(t.resolution_note` + scrubSQL + `, updated_at = now()
WHERE t.id IN (SELECT d.id FROM dead_letters d WHERE d.id = ANY ($2::uuid[]) AND ` + letterOfSQL + `)
  AND (t.payload, t.last_error, t.resolution_note) IS DISTINCT FROM (` + withoutPersonSQL + `, regexp_replace(t.last_error` + scrubSQL + `, regexp_replace(t.resolution_note` + scrubSQL + `)
RETURNING t.id`

	// It scans mailings_company: a company has some thousands of mailings. eraseCopiesSQL changes
	// the emails of the mailings, which have a copy of the sender.
	eraseMailingSendersSQL = `
UPDATE mailings t SET reply_to = CASE WHEN lower(t.reply_to) <> ALL ($2::text[]) THEN t.reply_to END,
    sender = CASE WHEN lower(coalesce(substring(t.sender FROM '<([^<>]+)>\s*$'), t.sender)) = ANY ($2::text[]) THEN c.default_from ELSE t.sender END
FROM companies c
WHERE c.id = $1 AND t.company_id = $1 AND (lower(t.reply_to) = ANY ($2::text[])
    OR lower(coalesce(substring(t.sender FROM '<([^<>]+)>\s*$'), t.sender)) = ANY ($2::text[]) AND t.sender <> c.default_from)
RETURNING t.id`
)

// ErasedCopies is the effect of EraseCopies, by the ids of the emails.
type ErasedCopies struct {
	Emails, Logs, Events pq.StringArray
	// Busy emails are being sent, wait for SES to report whether it accepted them, or are locked by
	// another transaction. They are unchanged and must be erased later.
	Busy pq.StringArray
}

// EraseCopies removes the person's addresses from emails to other people. It waits at most a second
// for a row that another transaction has locked, and then skips that email.
func (s *Store) EraseCopies(ctx context.Context, p Person, erasure uuid.UUID, ids []uuid.UUID) (ErasedCopies, error) {
	erase := func(ids []uuid.UUID) (done ErasedCopies, err error) {
		err = s.erasing(ctx, func(tx *sqlx.Tx) error {
			done = ErasedCopies{}
			return pg.Translate(tx.GetContext(ctx, &done, eraseCopiesSQL, p.CompanyID, pg.UUIDArray(ids), pq.StringArray(p.Addresses), p.pattern(), erasure, p.patterns()))
		})
		return done, pg.Wrap("erase copies", err)
	}
	all, err := erase(ids)
	if !pg.IsLockTimeout(err) {
		return all, err
	}
	all = ErasedCopies{}
	for _, id := range ids {
		one, err := erase([]uuid.UUID{id})
		switch {
		case pg.IsLockTimeout(err):
			all.Busy = append(all.Busy, id.String())
		case err != nil:
			return all, err
		}
		all.Emails, all.Logs, all.Events = append(all.Emails, one.Emails...), append(all.Logs, one.Logs...), append(all.Events, one.Events...)
		all.Busy = append(all.Busy, one.Busy...)
	}
	return all, nil
}

// EraseLetterCopies is EraseCopies for dead letters, which stay open and can be replayed.
func (s *Store) EraseLetterCopies(ctx context.Context, p Person, ids []uuid.UUID) ([]string, error) {
	return s.erased(ctx, "erase copies of dead letters", eraseLetterCopiesSQL, p.CompanyID, pg.UUIDArray(ids), pq.StringArray(p.Addresses), p.pattern())
}

// EraseMailingSenders removes the person's addresses from the From and Reply-To of mailings.
func (s *Store) EraseMailingSenders(ctx context.Context, p Person) ([]string, error) {
	return s.erased(ctx, "erase senders of mailings", eraseMailingSendersSQL, p.CompanyID, pq.StringArray(p.Addresses))
}
