package retention

import (
	"context"
	"time"

	"email-gateway/shared/store/internal/intake"
)

// These statements remove a person's number, the hash and the encrypted value, and
// keep the row. Each looks at the next rows along its table's primary key, reads the company's
// own retention (by company_retention_pkey), and locks the rows that it
// changes; a row that is locked is skipped, and found the next day. $2 is NULL
// when only companies with a retention of their own are processed. Related rows are selected by an array
// of keys, for which the planner expects about ten rows: for a join it may decide to read
// the whole table for each batch.
const (
	// Along recipients_pkey, whose ids are not ordered by time: all rows are looked at once a
	// day. The age is the time since the last write about the person.
	eraseRecipientHashesSQL = `
WITH seen AS MATERIALIZED (
    SELECT id FROM recipients WHERE id > $1 ORDER BY id LIMIT $3
), past AS MATERIALIZED (
    SELECT p.id FROM recipients p LEFT JOIN company_retention r ON r.company_id = p.company_id
    WHERE p.id = ANY (ARRAY(SELECT id FROM seen)) AND (p.cpf_cnpj_hash IS NOT NULL OR p.cpf_cnpj_enc IS NOT NULL)
      AND p.updated_at < ` + hashesBeforeSQL + `
    ORDER BY p.id FOR UPDATE OF p SKIP LOCKED
), gone AS (
    UPDATE recipients p SET cpf_cnpj_hash = NULL, cpf_cnpj_enc = NULL WHERE p.id = ANY (ARRAY(SELECT id FROM past)) RETURNING p.id
)` + walkedSQL

	// Along mailing_entries_pkey, and mailings_pkey. Only of a mailing that is never
	// expanded again: a failed one may be resumed, and its entries become recipients then.
	eraseEntryHashesSQL = `
WITH seen AS MATERIALIZED (
    SELECT id, mailing_id FROM mailing_entries WHERE id > $1 AND id < ` + youngest + `hashes_days` + ofAll + ` ORDER BY id LIMIT $3
), past AS MATERIALIZED (
    SELECT e.id FROM mailing_entries e JOIN mailings m ON m.id = e.mailing_id LEFT JOIN company_retention r ON r.company_id = m.company_id
    WHERE e.id = ANY (ARRAY(SELECT id FROM seen)) AND m.id = ANY (ARRAY(SELECT mailing_id FROM seen))
      AND (e.cpf_cnpj_hash IS NOT NULL OR e.cpf_cnpj_enc IS NOT NULL)
      AND m.status IN ('COMPLETED', 'CANCELLED') AND m.settling IS NULL AND coalesce(m.completed_at, m.updated_at) < ` + hashesBeforeSQL + `
    ORDER BY e.id FOR UPDATE OF e SKIP LOCKED
), gone AS (
    UPDATE mailing_entries e SET cpf_cnpj_hash = NULL, cpf_cnpj_enc = NULL, updated_at = now()
    WHERE e.id = ANY (ARRAY(SELECT id FROM past)) RETURNING e.id
)` + walkedSQL

	// Along email_outbox_pkey. Recipient imports that no worker has applied yet (by
	// recipient_intakes_pkey) keep the number until then, and failed imports keep it as
	// long as their dead letter is open (by dead_letters_open): they can be retried.
	// An email that names its recipient by the number alone could not be sent again without
	// it, or would get another row of recipients: its body is deleted too, and with it (by
	// mailing_entries_pkey) the values from which it was made, as in eraseBodiesSQL.
	eraseOutboxHashesSQL = `
WITH seen AS MATERIALIZED (
    SELECT id FROM email_outbox WHERE id > $1 AND id < ` + youngest + `hashes_days` + ofAll + ` ORDER BY id LIMIT $3
), past AS MATERIALIZED (
    SELECT o.id, o.target = 'email:send' AND o.status IN ('FAILED', 'EXPIRED', 'CANCELLED') AND o.body_erased_at IS NULL
               AND o.payload #>> '{recipient,recipientId}' IS NULL AND o.payload #>> '{recipient,externalId}' IS NULL AS final
    FROM email_outbox o LEFT JOIN company_retention r ON r.company_id = o.company_id
    WHERE o.id = ANY (ARRAY(SELECT id FROM seen))
      AND (o.cpf_cnpj_enc IS NOT NULL OR o.payload ->> 'cpfCnpjHash' IS NOT NULL OR o.payload #>> '{recipient,cpfCnpjHash}' IS NOT NULL)
      AND o.processed_at < ` + hashesBeforeSQL + `
      AND (o.target <> 'recipients.upsert' OR NOT EXISTS (
               SELECT FROM recipient_intakes i WHERE i.recipient_id = ` + intake.PersonSQL + ` AND i.outbox_id = o.id)
           AND NOT EXISTS (SELECT FROM dead_letters d WHERE d.outbox_id = o.id AND d.resolved_at IS NULL))
    ORDER BY o.id FOR UPDATE OF o SKIP LOCKED
), gone AS (
    UPDATE email_outbox o SET cpf_cnpj_enc = NULL,
        payload = CASE WHEN past.final THEN ` + keptPayloadSQL + ` ELSE (o.payload - 'cpfCnpjHash') #- '{recipient,cpfCnpjHash}' END,
        html = CASE WHEN NOT past.final THEN o.html WHEN o.html IS NOT NULL THEN '' END,
        text_body = CASE WHEN NOT past.final THEN o.text_body END,
        body_erased_at = CASE WHEN past.final THEN now() ELSE o.body_erased_at END
    FROM past WHERE o.id = past.id AND o.id = ANY (ARRAY(SELECT id FROM past))
    RETURNING o.id, past.final AND ` + ofMailingSQL + ` AS of_mailing
), emptied AS (
    ` + emptyEntriesSQL + ` WHERE e.id = ANY (ARRAY(SELECT id FROM gone WHERE of_mailing))
)` + walkedSQL

	// What is older than that goes; of everybody without an age it is NULL.
	hashesBeforeSQL = `now() - coalesce(r.hashes_days * interval '1 day', $2 * interval '1 ms')`
)

// EraseRecipientHashes looks at the next limit recipients and removes the number of those
// about whom nothing was written for longer than age, or than their company's own retention; age 0
// = only those with such a retention. The recipient stays under the same id: the id of a person
// who was known by the number alone is derived from it (store.RecipientID), so that an email
// with the same number finds the row and restores the number.
func (s *Store) EraseRecipientHashes(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	return s.walk(ctx, walkRecipientHashes, everybody, age, limit, eraseRecipientHashesSQL)
}

// EraseEntryHashes looks at the next limit entries of mailings and takes the number from
// those whose mailing was completed or cancelled longer ago than age, or than their
// company's own; age 0 = those with such a one alone.
func (s *Store) EraseEntryHashes(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	return s.walk(ctx, walkEntryHashes, everybody, age, limit, eraseEntryHashesSQL)
}

// EraseOutboxHashes looks at the next limit outbox rows and takes the number from those
// that came to their end longer ago than age, or than their company's own; age 0 = those
// with such a one alone. What names its recipient otherwise can be sent again as
// before; what knew him by the number alone cannot.
func (s *Store) EraseOutboxHashes(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	return s.walk(ctx, walkOutboxHashes, everybody, age, limit, eraseOutboxHashesSQL)
}
