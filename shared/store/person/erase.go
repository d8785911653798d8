package person

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/recipient"
)

const (
	// lockErasedMailingSQL locks the mailing by primary key. It waits for a step of the expander.
	lockErasedMailingSQL = `SELECT id FROM mailings WHERE id = $1 FOR UPDATE`
	// eraseEntriesSQL locks entries by primary key. The replaced addresses are unique within the
	// mailing. An entry that is not an email yet becomes CANCELLED.
	eraseEntriesSQL = `
WITH erased AS (
    UPDATE mailing_entries e SET email = 'line-' || e.line_no || '@erased.invalid', fields = '{}', token = '', nome = NULL, razao_social = NULL,
        recipient_external_id = NULL, cpf_cnpj_hash = NULL, cpf_cnpj_enc = NULL, recipient_id = NULL, validation_details = NULL,
        status = CASE WHEN e.status = 'PENDING' THEN 'CANCELLED' ELSE e.status END, updated_at = now()
    FROM mailing_entries was WHERE was.id = e.id AND e.id = ANY ($2::uuid[]) AND e.mailing_id = $1
      AND NOT was.email LIKE 'line-%@erased.invalid'
    RETURNING e.id, was.status = 'PENDING' AS cancelled
)
SELECT coalesce(array_agg(id), '{}') AS entries, count(*) FILTER (WHERE cancelled) AS cancelled FROM erased`
	// recountSQL marks the counts of the mailing as out of date, by primary key. Those of a dry run are of its upload, and are not
	// counted again.
	recountSQL = `UPDATE mailings SET counted_at = NULL, updated_at = now() WHERE id = $1 AND NOT dry_run`
)

// EraseEntries removes the recipients from entries of a mailing. Entries that are not emails yet
// become CANCELLED, so that the mailing's counts add up.
func (s *Store) EraseEntries(ctx context.Context, mailing uuid.UUID, ids []uuid.UUID) (entries []string, cancelled int, err error) {
	_, err = pg.Repeat(func() ([]struct{}, error) {
		return nil, s.db.InTx(ctx, func(tx *sqlx.Tx) error {
			if _, err := tx.ExecContext(ctx, lockErasedMailingSQL, mailing); err != nil {
				return pg.Translate(err)
			}
			var did struct {
				Entries   pq.StringArray
				Cancelled int
			}
			if err := tx.GetContext(ctx, &did, eraseEntriesSQL, mailing, pg.UUIDArray(ids)); err != nil {
				return pg.Translate(err)
			}
			entries, cancelled = did.Entries, did.Cancelled
			if did.Cancelled == 0 {
				return nil
			}
			_, err := tx.ExecContext(ctx, recountSQL, mailing)
			return pg.Translate(err)
		})
	})
	return entries, cancelled, pg.Wrap("erase entries", err)
}

// eraseDeadLettersSQL locks rows by primary key and discards open dead letters. It requests the
// removal of their tasks, which may still be in the archive of Redis.
const eraseDeadLettersSQL = `
WITH gone AS (
    UPDATE dead_letters d SET email = NULL, payload = '{}', last_error = NULL, updated_at = now(), resolution_note = NULL,
        resolution = CASE WHEN d.resolved_at IS NULL THEN 'discarded' ELSE d.resolution END,
        resolved_by = CASE WHEN d.resolved_at IS NULL THEN $3 ELSE d.resolved_by END, resolved_at = coalesce(d.resolved_at, now())
    FROM dead_letters was
    WHERE was.id = d.id AND d.id = ANY ($2::uuid[]) AND ` + letterOfSQL + `
    RETURNING d.id, coalesce(was.outbox_id, CASE WHEN was.payload ->> 'outboxId' ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
        THEN (was.payload ->> 'outboxId')::uuid END) AS task
), tasks AS (
    INSERT INTO erased_tasks (outbox_id, erasure_id, company_id, final)
    SELECT DISTINCT task, $4::uuid, $1::uuid, false FROM gone WHERE task IS NOT NULL` + askTasksSQL + `
)
SELECT id FROM gone`

// EraseDeadLetters removes personal data from dead letters, and discards those that are open.
func (s *Store) EraseDeadLetters(ctx context.Context, by audit.Operator, company, erasure uuid.UUID, ids []uuid.UUID) ([]string, error) {
	return s.erased(ctx, "erase dead letters", eraseDeadLettersSQL, company, pg.UUIDArray(ids), by.Actor().String(), erasure)
}

// eraseRecipientsSQL deletes recipients and their waiting imports by primary key. It replaces each
// row by one that contains only the id and the time of the erasure: a statement that was accepted
// before the erasure ($3, at $4) and arrives later must not restore the person.
// retention.Store.CleanRecipients deletes the new row.
const eraseRecipientsSQL = `
WITH intakes AS (
    DELETE FROM recipient_intakes WHERE recipient_id = ANY ($2::uuid[]) AND company_id = $1 AND outbox_id <= $3
), erased AS (
    DELETE FROM recipients WHERE id = ANY ($2::uuid[]) AND company_id = $1
      AND ($5 OR coalesce(greatest(intake_id, external_id_by, cpf_cnpj_by, razao_social_by, nome_by), $3) <= $3)
    RETURNING id, company_id, greatest($3, deletion_id, intake_id, external_id_by, cpf_cnpj_by, razao_social_by, nome_by) AS deletion_id
)
INSERT INTO recipients (id, company_id, email, intake_id, merged_by, deletion_id, deleted_at)
SELECT id, company_id, '` + recipient.ErasedAddress + `', deletion_id, deletion_id, deletion_id, $4 FROM erased RETURNING id`

// EraseRecipients removes everything except the ids from recipients of the company. deletion is a
// UUIDv7: statements accepted before it are void. A recipient with a newer statement is unchanged
// unless all is true.
func (s *Store) EraseRecipients(ctx context.Context, company, deletion uuid.UUID, ids []uuid.UUID, all bool) ([]string, error) {
	return s.erased(ctx, "erase recipients", eraseRecipientsSQL, company, pg.UUIDArray(ids), deletion, time.Unix(deletion.Time().UnixTime()).UTC(), all)
}

// eraseReplaysSQL reads the whole table, which contains the requests of a month. A running replay
// then finds no more rows of the person. It changes an operator's replay of all companies only
// after the replay is completed.
const eraseReplaysSQL = `
UPDATE dead_letter_replays SET note = NULL,
    filter = CASE WHEN lower(filter ->> 'recipient') = ANY ($2::text[]) THEN jsonb_set(filter, '{recipient}', to_jsonb($3::text)) ELSE filter END
WHERE (company_id = $1 OR company_id IS NULL AND status = 'COMPLETED') AND (lower(filter ->> 'recipient') = ANY ($2::text[]) OR note ~* $4)
RETURNING id`

// EraseReplays removes the person's addresses from requests to replay dead letters.
func (s *Store) EraseReplays(ctx context.Context, p Person) ([]string, error) {
	return s.erased(ctx, "erase replays", eraseReplaysSQL, p.CompanyID, pq.StringArray(p.Addresses), recipient.ErasedAddress, p.pattern())
}

// erased runs a statement that returns one text for each row that it changed.
func (s *Store) erased(ctx context.Context, what, statement string, args ...any) ([]string, error) {
	changed, err := pg.Repeat(func() (changed []string, err error) {
		err = pg.Write(func(args []any) error {
			changed = nil
			return s.db.SelectContext(ctx, &changed, statement, args...)
		}, append([]any{}, args...)...)
		return changed, err
	})
	return changed, pg.Wrap(what, err)
}

// Record writes an audit entry when an operator exports or erases a person. The entry
// does not identify the person: run distinguishes one run from another.
func (s *Store) Record(ctx context.Context, by audit.Operator, action string, company, run uuid.UUID, details map[string]any) error {
	a := audit.Change{Action: action, Company: company, Subject: run.String(), Details: details}
	return pg.Wrap("record "+action, audit.Record(ctx, s.db, by, a))
}
