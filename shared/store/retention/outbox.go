package retention

import (
	"context"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/recipient"
)

// purgeOutboxSQL reads the next rows along email_outbox_pkey and deletes, by the same key and in
// its order, those that became final longer ago than $2. It skips a row that another transaction has locked, such as that of
// a program that replaces a cancelled email: the next scan finds it. It also keeps a recipient import that no worker has
// applied yet (by recipient_intakes_pkey). It empties the entry from which a mailing's email was made (by
// mailing_entries_pkey).
const purgeOutboxSQL = `
WITH seen AS MATERIALIZED (
    SELECT o.id, o.processed_at < now() - $2 * interval '1 ms' AND (o.target <> 'recipients.upsert' OR NOT EXISTS (
               SELECT FROM recipient_intakes i WHERE i.recipient_id = ` + recipient.IntakeIDSQL + ` AND i.outbox_id = o.id)) AS past
    FROM email_outbox o WHERE o.id > $1 AND o.id < first_id_at(now() - $2 * interval '1 ms')
    ORDER BY o.id LIMIT $3
), held AS MATERIALIZED (
    SELECT o.id FROM email_outbox o
    WHERE o.id = ANY (ARRAY(SELECT id FROM seen WHERE past)) AND o.processed_at < now() - $2 * interval '1 ms'
    ORDER BY o.id FOR UPDATE OF o SKIP LOCKED
), gone AS (
    DELETE FROM email_outbox o WHERE o.id = ANY (ARRAY(SELECT id FROM held))
    RETURNING o.id, ` + ofMailingSQL + ` AS of_mailing
), emptied AS (
    ` + emptyEntriesSQL + ` FROM gone WHERE e.id = gone.id AND gone.of_mailing
)` + scannedSQL

const (
	// ofMailingSQL is true for an outbox row o whose body is made from a mailing's entry.
	ofMailingSQL = `o.target = 'email:send' AND starts_with(coalesce(o.payload ->> 'htmlRef', ''), 'mailing:')`
	// keptPayloadSQL is the payload of an outbox row o without what is deleted with its body.
	keptPayloadSQL = `(SELECT coalesce(jsonb_object_agg(key, value), '{}') FROM jsonb_each(o.payload) WHERE key IN ('to', 'cc', 'bcc', 'subject', 'htmlRef'))`
	// emptyEntriesSQL removes from mailing_entries e the names, the CPF or CNPJ, and what only
	// sending needs. The address and the outcome stay until the entry is deleted.
	emptyEntriesSQL = `UPDATE mailing_entries e SET fields = '{}', token = '', nome = NULL, razao_social = NULL, cpf_cnpj_hash = NULL, cpf_cnpj_enc = NULL, updated_at = now()`
)

// PurgeOutbox reads the next limit outbox rows and deletes those that became
// final longer ago than age. The email's history stays in its log.
func (s *Store) PurgeOutbox(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	return s.scan(ctx, scanOutbox, everybody, age, limit, purgeOutboxSQL)
}

// eraseBodiesSQL is purgeOutboxSQL for the contents of emails: the rows stay, with the addresses,
// which a later notification of the provider may name. eraseCompanyBodiesSQL handles the rows of
// companies with a retention of their own (by company_retention_pkey).
const (
	eraseBodiesSQL = `
WITH seen AS MATERIALIZED (
    SELECT o.id, ` + bodyPastSQL + ` AND NOT EXISTS (
               SELECT FROM company_retention r WHERE r.company_id = o.company_id AND r.bodies_days IS NOT NULL) AS past
    FROM email_outbox o WHERE o.id > $1 AND o.id < first_id_at(now() - $2 * interval '1 ms')
    ORDER BY o.id LIMIT $3
)` + eraseSeenSQL

	// It scans email_outbox_emails.
	eraseCompanyBodiesSQL = `
WITH seen AS MATERIALIZED (
    SELECT o.id, ` + bodyPastSQL + ` AS past
    FROM email_outbox o WHERE o.company_id = $4 AND o.target = 'email:send' AND o.id > $1 AND o.id < first_id_at(now() - $2 * interval '1 ms')
    ORDER BY o.id LIMIT $3
)` + eraseSeenSQL

	bodyPastSQL  = `o.target = 'email:send' AND o.body_erased_at IS NULL AND o.processed_at < now() - $2 * interval '1 ms'`
	eraseSeenSQL = `, held AS MATERIALIZED (
    SELECT o.id FROM email_outbox o
    WHERE o.id = ANY (ARRAY(SELECT id FROM seen WHERE past)) AND ` + bodyPastSQL + `
    ORDER BY o.id FOR UPDATE OF o SKIP LOCKED
), gone AS (
    UPDATE email_outbox o SET html = CASE WHEN o.html IS NOT NULL THEN '' END, text_body = NULL, cpf_cnpj_enc = NULL, body_erased_at = now(),
        payload = ` + keptPayloadSQL + `
    WHERE o.id = ANY (ARRAY(SELECT id FROM held))
    RETURNING o.id, ` + ofMailingSQL + ` AS of_mailing
), emptied AS (
    ` + emptyEntriesSQL + ` FROM gone WHERE e.id = gone.id AND gone.of_mailing
)` + scannedSQL
)

// EraseBodies reads the next limit outbox rows and removes bodies, headers and recipient data of
// emails that became final longer ago than age. These emails cannot be sent again. It skips
// companies with a retention of their own.
func (s *Store) EraseBodies(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	return s.scan(ctx, scanBodies, everybody, age, limit, eraseBodiesSQL)
}

// EraseCompanyBodies is EraseBodies for one company.
func (s *Store) EraseCompanyBodies(ctx context.Context, company uuid.UUID, age time.Duration, limit int) (Cleaned, error) {
	return s.scan(ctx, scanBodies, company, age, limit, eraseCompanyBodiesSQL)
}
