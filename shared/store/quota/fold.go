package quota

import (
	"context"
	"fmt"
)

// Both statements read the companies of quota_deltas, which contains what was written since the last
// round, and find quota_totals by primary key. foldQuotasSQL locks totals and leaves those that a
// request has locked to the next round, so that no company waits for another. Other statements never
// lock deltas: they insert them, and only foldQuotasSQL deletes them. folded_before is the oldest open
// transaction: deltas of earlier ones are committed, and therefore deleted by this statement. Deltas of
// open transactions are left to the round after the commit.
const (
	addTotalsSQL = `
INSERT INTO quota_totals (company_id)
SELECT DISTINCT d.company_id FROM quota_deltas d WHERE NOT EXISTS (SELECT FROM quota_totals t WHERE t.company_id = d.company_id)
ORDER BY 1 LIMIT $1 ON CONFLICT DO NOTHING`

	foldQuotasSQL = `
WITH held AS MATERIALIZED (
    SELECT t.company_id FROM quota_totals t JOIN (SELECT DISTINCT company_id FROM quota_deltas LIMIT $1) d ON d.company_id = t.company_id
    ORDER BY t.company_id FOR UPDATE OF t SKIP LOCKED
), taken AS (
    DELETE FROM quota_deltas d USING held h WHERE d.company_id = h.company_id RETURNING d.*
), sums AS (
    SELECT company_id, last, sum(emails) FILTER (WHERE day = last) AS emails, sum(scheduled) AS scheduled, sum(body_bytes) AS body_bytes,
           sum(recipients) AS recipients, sum(suppressions) AS suppressions
    FROM (SELECT *, max(day) OVER (PARTITION BY company_id) AS last FROM taken) t GROUP BY company_id, last
)
UPDATE quota_totals t SET
    folded_before = pg_snapshot_xmin(pg_current_snapshot()), day = greatest(t.day, s.last),
    emails = CASE WHEN t.day > s.last THEN t.emails WHEN t.day = s.last THEN t.emails + s.emails ELSE s.emails END,
    scheduled = t.scheduled + s.scheduled, body_bytes = t.body_bytes + s.body_bytes,
    recipients = t.recipients + s.recipients, suppressions = t.suppressions + s.suppressions
FROM sums s WHERE t.company_id = s.company_id`
)

// FoldQuotas adds the deltas since the last round to the totals of at most limit companies, and
// returns the number of companies.
func (s *Store) FoldQuotas(ctx context.Context, limit int) (int, error) {
	if _, err := s.db.Exec(ctx, addTotalsSQL, limit); err != nil {
		return 0, fmt.Errorf("add quota totals: %w", err)
	}
	result, err := s.db.Exec(ctx, foldQuotasSQL, limit)
	if err != nil {
		return 0, fmt.Errorf("fold quotas: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("fold quotas: %w", err)
	}
	return int(n), nil
}
