package retention

import (
	"context"
	"time"
)

// eraseEntryValuesSQL empties entries that never became emails: invalid entries, entries of a dry
// run, and entries cancelled before their expansion. eraseBodiesSQL and purgeOutboxSQL remove the
// values of the others. The statement reads the next entries along mailing_entries_pkey, their
// mailings by mailings_pkey, the company's own retention by company_retention_pkey and the email by
// email_outbox_pkey. It locks the entries that it empties and skips locked ones until the next day.
// It skips failed mailings: they may be resumed, and then need all of their entries.
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
)` + scannedSQL

// EraseEntryValues reads the next limit entries of mailings and empties those that never became
// an email and whose mailing was completed or cancelled longer ago than age, the retention of
// bodies, or than the company's own retention; age 0 = only companies with such a retention. The
// addresses and outcomes stay until the entries are deleted.
func (s *Store) EraseEntryValues(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	return s.scan(ctx, scanEntryValues, everybody, age, limit, eraseEntryValuesSQL)
}
