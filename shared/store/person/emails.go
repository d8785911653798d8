package person

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/email"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
)

// safeMetadataSQL is the metadata of an event e without the values that may identify a person.
const safeMetadataSQL = `(SELECT coalesce(jsonb_object_agg(m.key, m.value), '{}') FROM jsonb_each(e.metadata) m
    WHERE m.key IN ('attemptId', 'attempt', 'sesMessageId', 'feedback', 'by', 'keyId', 'mailingId', 'replayId', 'code', 'errorCode', 'category',
                    'oldSendAt', 'newSendAt'))`

// eraseWait is how long an erasure waits for a row that another transaction has locked. After that
// it leaves the email to the next round.
const eraseWait = time.Second

// erasing runs do in a transaction that waits at most eraseWait for each lock.
func (s *Store) erasing(ctx context.Context, do func(tx *sqlx.Tx) error) error {
	_, err := pg.Repeat(func() ([]struct{}, error) {
		return nil, s.db.InTx(ctx, func(tx *sqlx.Tx) error {
			if _, err := tx.ExecContext(ctx, pg.BoundWaitSQL, fmt.Sprint(eraseWait.Milliseconds())); err != nil {
				return pg.Translate(err)
			}
			return do(tx)
		})
	})
	return err
}

// askTasksSQL requests the dispatcher to remove a task from Redis. A repeated erasure requests it
// again, unless the task was already found for this erasure: the receipt counts it once.
const askTasksSQL = `
    ON CONFLICT (outbox_id) DO UPDATE SET erasure_id = excluded.erasure_id, done_at = NULL, found = false, final = erased_tasks.final OR excluded.final
    WHERE erased_tasks.company_id = excluded.company_id AND NOT (erased_tasks.found AND erased_tasks.erasure_id = excluded.erasure_id)`

// eraseEmailsSQL locks the outbox rows by primary key, in the order of their ids. Rows
// that are not final stay unchanged, with their logs and timelines, because a worker is sending
// them. Logs are found by email_logs_pkey, events by email_events_pkey, notifications by
// ses_events_outbox. Recipient imports are deleted, with their mark in recipient_intakes (by
// primary key). A trigger deletes attachments (found by attachments_pkey); their files (by
// stored_files_company_id_id_key) are deleted by file.Store.DeleteErased, or by the next cleaner, unless
// another email attaches them. The dispatcher is requested to remove their tasks (erased_tasks_pkey).
const eraseEmailsSQL = `
WITH held AS MATERIALIZED (
    SELECT o.id, o.target, o.processed_at IS NULL AND o.target = 'email:send' AS busy, ` + recipient.IntakeIDSQL + ` AS recipient_id,
           o.payload ->> 'to' IS DISTINCT FROM $3 AS fresh
    FROM email_outbox o WHERE o.id = ANY ($2::uuid[]) AND o.company_id = $1 ORDER BY o.id FOR UPDATE
), emails AS (
    UPDATE email_outbox o SET html = CASE WHEN o.html IS NOT NULL THEN '' END, text_body = NULL, cpf_cnpj_enc = NULL,
        last_error = split_part(o.last_error, ':', 1), body_erased_at = coalesce(o.body_erased_at, now()),
        payload = jsonb_strip_nulls(jsonb_build_object('to', $3::text, 'subject', '', 'htmlRef', o.payload -> 'htmlRef'))
    FROM held WHERE o.id = held.id AND held.target = 'email:send' AND NOT held.busy AND held.fresh
), imports AS (
    DELETE FROM email_outbox o USING held WHERE o.id = held.id AND held.target = 'recipients.upsert'
), pending AS (
    DELETE FROM recipient_intakes i USING held WHERE held.target = 'recipients.upsert' AND i.recipient_id = held.recipient_id AND i.outbox_id = held.id
    RETURNING i.outbox_id
), tasks AS (
    INSERT INTO erased_tasks (outbox_id, erasure_id, company_id, final)
    SELECT id, $4, $1, true FROM held WHERE target = 'email:send' AND NOT busy AND fresh` + askTasksSQL + `
), attached AS MATERIALIZED (
    SELECT a.owner_id, a.file_id FROM held JOIN attachments a ON a.owner_id = held.id AND a.company_id = $1
    WHERE held.target = 'email:send' AND NOT held.busy AND held.fresh
), unused AS (
    UPDATE stored_files f SET used_at = '-infinity' FROM attached WHERE f.company_id = $1 AND f.id = attached.file_id
), ended AS (
    SELECT t.id FROM unnest($2::uuid[]) AS t (id) WHERE NOT EXISTS (SELECT FROM held WHERE held.id = t.id AND held.busy)
), logs AS (
    UPDATE email_logs l SET recipient = $3, subject = '', recipient_id = NULL, external_id = NULL, tags = '{}', error_reason = NULL, delivery_problem_reason = NULL
    FROM ended WHERE l.outbox_id = ended.id AND l.company_id = $1
      AND (l.recipient <> $3 OR l.recipient_id IS NOT NULL OR l.external_id IS NOT NULL OR l.error_reason IS NOT NULL OR l.delivery_problem_reason IS NOT NULL)
    RETURNING l.outbox_id
), events AS (
    UPDATE email_events e SET metadata = ` + safeMetadataSQL + ` FROM logs WHERE e.email_log_id = logs.outbox_id AND e.metadata <> ` + safeMetadataSQL + `
    RETURNING e.email_log_id
), notifications AS (
    UPDATE ses_events n SET payload = '{}' FROM ended WHERE n.outbox_id = ended.id AND n.payload <> '{}' RETURNING n.outbox_id
)
SELECT coalesce(array_agg(id) FILTER (WHERE busy), '{}') AS busy,
       coalesce(array_agg(id) FILTER (WHERE NOT busy AND fresh AND target = 'email:send'), '{}') AS emails,
       coalesce(array_agg(id) FILTER (WHERE target = 'recipients.upsert'), '{}') AS imports,
       (SELECT coalesce(array_agg(outbox_id), '{}') FROM pending) AS pending_imports,
       (SELECT coalesce(array_agg(outbox_id), '{}') FROM logs) AS logs, (SELECT coalesce(array_agg(email_log_id), '{}') FROM events) AS events,
       (SELECT coalesce(array_agg(owner_id), '{}') FROM attached) AS attachments, (SELECT coalesce(array_agg(DISTINCT file_id), '{}') FROM attached) AS files,
       (SELECT coalesce(array_agg(outbox_id), '{}') FROM notifications) AS notifications FROM held`

// ErasedEmails is the effect of EraseEmails, by the ids of the emails; an id occurs once
// for each row.
type ErasedEmails struct {
	Cancelled int `db:"-"` // that had not been sent
	// Emails are outbox rows, Notifications are those of SES, and Imports are outbox rows of recipient imports.
	Emails, Logs, Events, Notifications, Imports pq.StringArray
	// PendingImports are the rows of recipient_intakes that are deleted with Imports.
	PendingImports pq.StringArray `db:"pending_imports"`
	// Attachments are deleted, Files are the files that they named.
	Attachments, Files pq.StringArray
	// Busy emails are being sent, wait for SES to report whether it accepted them, or are locked by
	// another transaction. They are unchanged and must be erased later.
	Busy pq.StringArray
}

// EraseEmails cancels those of the company's emails that have not been sent, and removes recipient
// and content from the rows, logs and timelines of all of them. The rows then show only that there
// was an email, its times and its outcome. Pass at most some hundred ids. A repeated call has no
// further effect.
//
// It waits at most a second for a row that another transaction has locked, and then skips
// that email.
func (s *Store) EraseEmails(ctx context.Context, by audit.Operator, company, erasure uuid.UUID, ids []uuid.UUID) (ErasedEmails, error) {
	done, err := s.eraseEmails(ctx, by, company, erasure, ids)
	if !pg.IsLockTimeout(err) {
		return done, pg.Wrap("erase emails", err)
	}
	done = ErasedEmails{}
	for _, id := range ids {
		one, err := s.eraseEmails(ctx, by, company, erasure, []uuid.UUID{id})
		switch {
		case pg.IsLockTimeout(err):
			done.Busy = append(done.Busy, id.String())
		case err != nil:
			return done, pg.Wrap("erase emails", err)
		}
		done.Cancelled += one.Cancelled
		done.Emails, done.Logs, done.Events = append(done.Emails, one.Emails...), append(done.Logs, one.Logs...), append(done.Events, one.Events...)
		done.PendingImports = append(done.PendingImports, one.PendingImports...)
		done.Attachments, done.Files = append(done.Attachments, one.Attachments...), append(done.Files, one.Files...)
		done.Notifications, done.Imports, done.Busy = append(done.Notifications, one.Notifications...), append(done.Imports, one.Imports...), append(done.Busy, one.Busy...)
	}
	return done, nil
}

func (s *Store) eraseEmails(ctx context.Context, by audit.Operator, company, erasure uuid.UUID, ids []uuid.UUID) (ErasedEmails, error) {
	cancels := make([]outbox.Transition, len(ids))
	for i, id := range ids {
		cancels[i] = outbox.Transition{
			ID: id, Guard: outbox.GuardOpen, Status: email.Cancelled,
			Events: []email.Event{{Type: email.EventCancelled, At: time.Now().UTC(), Metadata: map[string]any{"by": by.Actor().By}}},
		}
	}
	var done ErasedEmails
	_, err := pg.Repeat(func() ([]struct{}, error) {
		return nil, s.db.InTx(ctx, func(tx *sqlx.Tx) error {
			// AdvanceAllIn sets the lock timeout of the whole transaction.
			moved, err := outbox.AdvanceAllIn(ctx, tx, cancels, eraseWait)
			if err != nil {
				return err
			}
			done = ErasedEmails{}
			if err := tx.GetContext(ctx, &done, eraseEmailsSQL, company, pg.UUIDArray(ids), recipient.ErasedAddress, erasure); err != nil {
				return pg.Translate(err)
			}
			for _, m := range moved {
				if m.Applied {
					done.Cancelled++
				}
			}
			return nil
		})
	})
	return done, err
}
