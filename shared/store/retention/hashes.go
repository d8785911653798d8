package retention

import (
	"context"
	"time"

	"email-gateway/shared/store/recipient"
)

// These statements remove a person's CPF or CNPJ, as a hash and encrypted, and keep the row. Each
// reads the next rows along its table's primary key and the company's own retention (by
// company_retention_pkey), and locks the rows that it changes; it skips locked rows until the next
// day. $2 is NULL if only companies with a retention of their own are processed. Related rows are
// selected by an array of keys, for which the planner expects about ten rows: for a join it may
// read the whole table for each batch.
const (
	// It scans recipients_pkey, whose ids are not ordered by time: all rows are read once a
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
)` + scannedSQL

	// It scans mailing_entries_pkey and looks up mailings_pkey. It skips failed mailings, which may
	// be resumed: their entries then become recipients.
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
)` + scannedSQL

	// It scans email_outbox_pkey. Recipient imports keep the number until a worker has applied
	// them (by recipient_intakes_pkey), and failed imports as long as their dead letter is open
	// (by dead_letters_open), because they can be retried. An email that names its recipient by
	// the number alone could not be sent again without it, or would get another row of recipients:
	// its body is deleted too, with the values from which it was made (by mailing_entries_pkey),
	// as in eraseBodiesSQL.
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
               SELECT FROM recipient_intakes i WHERE i.recipient_id = ` + recipient.IntakeIDSQL + ` AND i.outbox_id = o.id)
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
)` + scannedSQL

	// Older numbers are removed. It is NULL for companies without a retention if age is 0.
	hashesBeforeSQL = `now() - coalesce(r.hashes_days * interval '1 day', $2 * interval '1 ms')`
)

// EraseRecipientHashes reads the next limit recipients and removes the number of those that were
// not written for longer than age, or than their company's own retention; age 0 = only companies
// with such a retention. The recipient keeps its id: the id of a person who was known by the number
// alone is derived from it (recipient.ID), so that an email with the same number finds the row
// and restores the number.
func (s *Store) EraseRecipientHashes(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	return s.scan(ctx, scanRecipientHashes, everybody, age, limit, eraseRecipientHashesSQL)
}

// EraseEntryHashes reads the next limit entries of mailings and removes the number of those whose
// mailing was completed or cancelled longer ago than age, or than their company's own retention;
// age 0 = only companies with such a retention.
func (s *Store) EraseEntryHashes(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	return s.scan(ctx, scanEntryHashes, everybody, age, limit, eraseEntryHashesSQL)
}

// EraseOutboxHashes reads the next limit outbox rows and removes the number of those that became
// final longer ago than age, or than their company's own retention; age 0 = only companies with
// such a retention. An email that named its recipient by the number alone cannot be sent again
// after that; others can.
func (s *Store) EraseOutboxHashes(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	return s.scan(ctx, scanOutboxHashes, everybody, age, limit, eraseOutboxHashesSQL)
}
