package store

import (
	"context"
	"time"
)

// eraseEntryValuesSQL is for entries that are no emails and never will be: invalid ones,
// those of a dry run, those that were cancelled before. Of the others, eraseBodiesSQL and
// purgeOutboxSQL take the values along. It looks at the next entries along
// mailing_entries_pkey, asks for their mailings by mailings_pkey, for their company's own
// age by company_retention_pkey and for an email by email_outbox_pkey, and locks those
// that it empties; one that somebody holds is found the next day. A failed mailing may be
// resumed, and needs them all.
const eraseEntryValuesSQL = `
WITH seen AS MATERIALIZED (
    SELECT id, mailing_id FROM mailing_entries
    WHERE id > $1 AND id < ` + youngest + `bodies_days` + ofAll + `
    ORDER BY id LIMIT $3
), past AS MATERIALIZED (
    SELECT e.id FROM mailing_entries e JOIN mailings m ON m.id = e.mailing_id LEFT JOIN company_retention r ON r.company_id = m.company_id
    WHERE e.id = ANY (ARRAY(SELECT id FROM seen)) AND m.id = ANY (ARRAY(SELECT mailing_id FROM seen))
      AND (e.fields <> '{}' OR e.token <> '' OR e.nome IS NOT NULL OR e.razao_social IS NOT NULL OR e.cpf_cnpj_hash IS NOT NULL OR e.cpf_cnpj_enc IS NOT NULL)
      AND m.status IN ('COMPLETED', 'CANCELLED') AND m.settling IS NULL
      AND coalesce(m.completed_at, m.updated_at) < now() - coalesce(r.bodies_days * interval '1 day', $2 * interval '1 ms')
      AND NOT EXISTS (SELECT FROM email_outbox o WHERE o.id = e.id)
    ORDER BY e.id FOR UPDATE OF e SKIP LOCKED
), gone AS (
    ` + emptyEntriesSQL + ` WHERE e.id = ANY (ARRAY(SELECT id FROM past)) RETURNING e.id
)` + walkedSQL

// EraseEntryValues looks at the next limit entries of mailings and empties those that
// never became an email and whose mailing was completed or cancelled longer ago than age,
// which is that of bodies, or than their company's own; age 0 = those with such a one
// alone. Their addresses stay, with what became of them, until the entries go.
func (s *Store) EraseEntryValues(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	return s.walk(ctx, walkEntryValues, everybody, age, limit, eraseEntryValuesSQL)
}
