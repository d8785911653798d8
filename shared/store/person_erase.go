package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/email"
)

// safeMetadataSQL keeps of an event e what names no person.
const safeMetadataSQL = `(SELECT coalesce(jsonb_object_agg(m.key, m.value), '{}') FROM jsonb_each(e.metadata) m
    WHERE m.key IN ('attemptId', 'attempt', 'sesMessageId', 'feedback', 'by', 'keyId', 'mailingId', 'replayId', 'code', 'errorCode', 'category',
                    'oldSendAt', 'newSendAt'))`

// eraseEmailsSQL locks the outbox rows by primary key, in the order of their ids. Those
// that have not ended stay as they are, with their logs and timelines: somebody is sending
// them. Logs are found by email_logs_pkey, events by email_events_pkey. News of a recipient
// are deleted, with their mark in recipient_intakes (by primary key).
const eraseEmailsSQL = `
WITH held AS MATERIALIZED (
    SELECT o.id, o.target, o.processed_at IS NULL AND o.target = 'email:send' AS busy, ` + intakePersonSQL + ` AS recipient_id,
           o.payload ->> 'to' IS DISTINCT FROM $3 AS fresh
    FROM email_outbox o WHERE o.id = ANY ($2::uuid[]) AND o.company_id = $1 ORDER BY o.id FOR UPDATE
), emails AS (
    UPDATE email_outbox o SET html = CASE WHEN o.html IS NOT NULL THEN '' END, text_body = NULL, cpf_cnpj_enc = NULL,
        last_error = split_part(o.last_error, ':', 1), body_erased_at = coalesce(o.body_erased_at, now()),
        payload = jsonb_strip_nulls(jsonb_build_object('to', $3::text, 'subject', '', 'htmlRef', o.payload -> 'htmlRef'))
    FROM held WHERE o.id = held.id AND held.target = 'email:send' AND NOT held.busy
), news AS (
    DELETE FROM email_outbox o USING held WHERE o.id = held.id AND held.target = 'recipients.upsert'
), intakes AS (
    DELETE FROM recipient_intakes i USING held WHERE held.target = 'recipients.upsert' AND i.recipient_id = held.recipient_id AND i.outbox_id = held.id
), ended AS (
    SELECT t.id FROM unnest($2::uuid[]) AS t (id) WHERE NOT EXISTS (SELECT FROM held WHERE held.id = t.id AND held.busy)
), logs AS (
    UPDATE email_logs l SET recipient = $3, subject = '', recipient_id = NULL, external_id = NULL, tags = '{}', error_reason = NULL
    FROM ended WHERE l.outbox_id = ended.id AND l.company_id = $1 RETURNING l.outbox_id
), events AS (
    UPDATE email_events e SET metadata = ` + safeMetadataSQL + ` FROM logs WHERE e.email_log_id = logs.outbox_id
)
SELECT coalesce(array_agg(id) FILTER (WHERE busy), '{}') AS busy, count(*) FILTER (WHERE NOT busy AND fresh AND target = 'email:send') AS emails,
       count(*) FILTER (WHERE target = 'recipients.upsert') AS news, (SELECT count(*) FROM logs) AS logs FROM held`

// withoutCopiesSQL is the payload of t without some addresses in cc, bcc and replyTo.
const withoutCopiesSQL = `(t.payload - CASE WHEN lower(t.payload ->> 'replyTo') = ANY ($3::text[]) THEN 'replyTo' ELSE '' END) || jsonb_build_object(
        'cc', (SELECT coalesce(jsonb_agg(c), '[]') FROM jsonb_array_elements(coalesce(t.payload -> 'cc', '[]')) c WHERE lower(c #>> '{}') <> ALL ($3::text[])),
        'bcc', (SELECT coalesce(jsonb_agg(c), '[]') FROM jsonb_array_elements(coalesce(t.payload -> 'bcc', '[]')) c WHERE lower(c #>> '{}') <> ALL ($3::text[])))`

// Both find by primary key. What such an email is sent as is not changed otherwise. Its
// timeline outlives its outbox row.
const (
	eraseCopiesSQL = `
WITH changed AS (
    UPDATE email_outbox t SET payload = ` + withoutCopiesSQL + ` WHERE t.id = ANY ($2::uuid[]) AND t.company_id = $1 RETURNING t.id
), events AS (
    UPDATE email_events e SET metadata = ` + safeMetadataSQL + ` FROM email_logs l
    WHERE l.outbox_id = ANY ($2::uuid[]) AND l.company_id = $1 AND e.email_log_id = l.outbox_id AND e.metadata::text ~* ANY ($4::text[])
    RETURNING l.outbox_id
)
SELECT count(*) FROM (SELECT id FROM changed UNION SELECT outbox_id FROM events) n`

	eraseLetterCopiesSQL = `
UPDATE dead_letters t SET payload = ` + withoutCopiesSQL + `, updated_at = now() WHERE t.id = ANY ($2::uuid[]) AND t.company_id = $1`
)

// ErasedEmails is what EraseEmails has done.
type ErasedEmails struct {
	Cancelled int `db:"-"`      // that had not been sent
	Emails    int `db:"emails"` // outbox rows
	Logs      int `db:"logs"`
	News      int `db:"news"` // of recipients, deleted
	// Busy are being sent right now, or wait for SES to say whether it took them. They
	// stay, to be erased when they have ended.
	Busy pq.StringArray `db:"busy"`
}

// EraseEmails ends those of the company's emails that have not been sent, CANCELLED, and
// takes out of their rows, logs and timelines whom they were for and what they said. What
// is left says that there was an email, when, and what became of it. At most some hundred
// ids at a time. Done twice, it changes nothing more.
func (s *Store) EraseEmails(ctx context.Context, by Operator, company uuid.UUID, ids []uuid.UUID) (ErasedEmails, error) {
	var done ErasedEmails
	_, err := repeat(func() ([]struct{}, error) {
		return nil, s.inTx(ctx, func(tx *sqlx.Tx) error {
			var cancelled int
			for _, id := range ids {
				moved, err := advanceIn(ctx, tx, Transition{
					ID: id, Guard: GuardOpen, Status: email.Cancelled,
					Events: []email.Event{{Type: email.EventCancelled, At: time.Now().UTC(), Metadata: map[string]any{"by": by.actor().By}}},
				})
				if err != nil {
					return err
				}
				if moved.Applied {
					cancelled++
				}
			}
			if err := tx.GetContext(ctx, &done, eraseEmailsSQL, company, uuidArray(ids), ErasedAddress); err != nil {
				return translate(err)
			}
			done.Cancelled = cancelled
			return nil
		})
	})
	return done, wrap("erase emails", err)
}

// EraseCopies takes the person's addresses out of emails to others.
func (s *Store) EraseCopies(ctx context.Context, p Person, ids []uuid.UUID) (n int, err error) {
	_, err = repeat(func() ([]struct{}, error) {
		return nil, translate(s.db.GetContext(ctx, &n, eraseCopiesSQL, p.CompanyID, uuidArray(ids), pq.StringArray(p.Addresses), p.patterns()))
	})
	return n, wrap("erase copies", err)
}

// EraseLetterCopies is EraseCopies for dead letters, which stay open to be sent again.
func (s *Store) EraseLetterCopies(ctx context.Context, p Person, ids []uuid.UUID) (int, error) {
	return s.erase(ctx, "erase copies of dead letters", eraseLetterCopiesSQL, p.CompanyID, uuidArray(ids), pq.StringArray(p.Addresses))
}

const (
	// lockErasedMailingSQL waits for a step of the expander, by primary key.
	lockErasedMailingSQL = `SELECT id FROM mailings WHERE id = $1 FOR UPDATE`
	// eraseEntriesSQL locks entries by primary key. An address is still unique within its
	// mailing. An entry that has not become an email counts as cancelled.
	eraseEntriesSQL = `
WITH erased AS (
    UPDATE mailing_entries e SET email = 'line-' || e.line_no || '@erased.invalid', fields = '{}', token = '', nome = NULL, razao_social = NULL,
        recipient_external_id = NULL, cpf_cnpj_hash = NULL, cpf_cnpj_enc = NULL, recipient_id = NULL, validation_details = NULL,
        status = CASE WHEN e.status = 'PENDING' THEN 'CANCELLED' ELSE e.status END, updated_at = now()
    FROM mailing_entries was WHERE was.id = e.id AND e.id = ANY ($2::uuid[]) AND e.mailing_id = $1
    RETURNING was.status = 'PENDING' AS cancelled
)
SELECT count(*) AS entries, count(*) FILTER (WHERE cancelled) AS cancelled FROM erased`
	// recountSQL has the mailing counted again, by primary key.
	recountSQL = `UPDATE mailings SET counted_at = NULL WHERE id = $1`
)

// EraseEntries takes whom they were for out of entries of a mailing. Those that are not
// emails yet never will be: they count as cancelled, so that the mailing's numbers add up.
func (s *Store) EraseEntries(ctx context.Context, mailing uuid.UUID, ids []uuid.UUID) (entries, cancelled int, err error) {
	_, err = repeat(func() ([]struct{}, error) {
		return nil, s.inTx(ctx, func(tx *sqlx.Tx) error {
			if _, err := tx.ExecContext(ctx, lockErasedMailingSQL, mailing); err != nil {
				return translate(err)
			}
			var did struct {
				Entries   int `db:"entries"`
				Cancelled int `db:"cancelled"`
			}
			if err := tx.GetContext(ctx, &did, eraseEntriesSQL, mailing, uuidArray(ids)); err != nil {
				return translate(err)
			}
			entries, cancelled = did.Entries, did.Cancelled
			if did.Cancelled == 0 {
				return nil
			}
			_, err := tx.ExecContext(ctx, recountSQL, mailing)
			return translate(err)
		})
	})
	return entries, cancelled, wrap("erase entries", err)
}

// eraseDeadLettersSQL locks rows by primary key. What is open is discarded.
const eraseDeadLettersSQL = `
UPDATE dead_letters d SET email = NULL, payload = '{}', last_error = NULL, updated_at = now(), resolution_note = NULL,
    resolution = CASE WHEN d.resolved_at IS NULL THEN 'discarded' ELSE d.resolution END,
    resolved_by = CASE WHEN d.resolved_at IS NULL THEN $3 ELSE d.resolved_by END, resolved_at = coalesce(d.resolved_at, now())
WHERE d.id = ANY ($2::uuid[]) AND ` + letterOfSQL

// EraseDeadLetters takes the person out of dead letters, and discards those still open.
func (s *Store) EraseDeadLetters(ctx context.Context, by Operator, company uuid.UUID, ids []uuid.UUID) (int, error) {
	return s.erase(ctx, "erase dead letters", eraseDeadLettersSQL, company, uuidArray(ids), by.actor().String())
}

// eraseRecipientsSQL deletes by primary key, and the marks of imports that wait by that of
// recipient_intakes. In a row's place it puts one that holds nothing but the id and when it
// was erased: a statement that was accepted before ($3, at $4) and arrives later must not
// bring the person back. CleanRecipients deletes it.
const eraseRecipientsSQL = `
WITH intakes AS (
    DELETE FROM recipient_intakes WHERE recipient_id = ANY ($2::uuid[]) AND company_id = $1
), erased AS (
    DELETE FROM recipients WHERE id = ANY ($2::uuid[]) AND company_id = $1
    RETURNING id, company_id, greatest($3, deletion_id, intake_id, external_id_by, cpf_cnpj_by, razao_social_by, nome_by) AS deletion_id
)
INSERT INTO recipients (id, company_id, email, intake_id, merged_by, deletion_id, deleted_at)
SELECT id, company_id, '` + ErasedAddress + `', deletion_id, deletion_id, deletion_id, $4 FROM erased`

// EraseRecipients takes everything from recipients of the company but their ids.
func (s *Store) EraseRecipients(ctx context.Context, company uuid.UUID, ids []uuid.UUID) (int, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return 0, fmt.Errorf("make id of erasure: %w", err)
	}
	return s.erase(ctx, "erase recipients", eraseRecipientsSQL, company, uuidArray(ids), id, madeAt(id))
}

// Both find by the first columns of suppressions_pkey.
const (
	eraseSuppressionNotesSQL = `
UPDATE suppressions SET note = NULL, mailing_id = NULL WHERE company_id = $1 AND address = ANY ($2::text[]) AND (note IS NOT NULL OR mailing_id IS NOT NULL)`
	eraseSuppressionsSQL = `DELETE FROM suppressions WHERE company_id = $1 AND address = ANY ($2::text[])`
)

// EraseSuppressions takes the notes from the suppressions of the person's addresses, and
// with forget deletes them: he may be written to again then.
func (s *Store) EraseSuppressions(ctx context.Context, p Person, forget bool) (int, error) {
	if forget {
		return s.erase(ctx, "erase suppressions", eraseSuppressionsSQL, p.CompanyID, pq.StringArray(p.Addresses))
	}
	return s.erase(ctx, "erase suppressions", eraseSuppressionNotesSQL, p.CompanyID, pq.StringArray(p.Addresses))
}

// eraseReplaysSQL reads the whole table, which holds the requests of a month. A request
// that is being worked off finds nobody of this name any more; an operator's, which is about
// all companies, is worked off first.
const eraseReplaysSQL = `
UPDATE dead_letter_replays SET filter = jsonb_set(filter, '{recipient}', to_jsonb($3::text)), note = NULL
WHERE (company_id = $1 OR company_id IS NULL AND status = 'COMPLETED') AND lower(filter ->> 'recipient') = ANY ($2::text[])`

// EraseReplays takes the person's addresses out of requests to send dead letters again.
func (s *Store) EraseReplays(ctx context.Context, p Person) (int, error) {
	return s.erase(ctx, "erase replays", eraseReplaysSQL, p.CompanyID, pq.StringArray(p.Addresses), ErasedAddress)
}

func (s *Store) erase(ctx context.Context, what, statement string, args ...any) (int, error) {
	var n int64
	_, err := repeat(func() ([]struct{}, error) {
		result, err := s.exec(ctx, statement, args...)
		if err == nil {
			n, err = result.RowsAffected()
		}
		return nil, err
	})
	return int(n), wrap(what, err)
}

// RecordPerson writes down that an operator exports or erases somebody. Nothing of what is
// written names him: run tells the rows of one go from another's.
func (s *Store) RecordPerson(ctx context.Context, by Operator, action string, company, run uuid.UUID, details map[string]any) error {
	a := act{action: action, company: company, subject: run.String(), details: details}
	return wrap("record "+action, s.record(ctx, by, a))
}
