package quota

import (
	"context"
	"fmt"
)

// foldQuotasSQL finds the companies with new deltas by one probe of quota_deltas_pkey for each row of quota_totals,
// locks their totals, and leaves those that a request has locked to the next round, so that no company waits for
// another. Other statements never lock deltas: they insert them, and only this one deletes them.
//
// Deleted deltas stay in table and index as long as any transaction of the database is older than their deletion.
// folded is the snapshot of the company's last fold, which has deleted what was visible in it: the statement reads only
// the deltas of transactions that began later (since), or were open then. A company with nothing but the latter is not
// found by the probe. With $2 all deltas are read: it finds these, and those of a database that was restored from a
// dump whose transactions had higher numbers.
//
// Days after today's are of a server whose clock was ahead: they count as today. A total of such a day would otherwise
// count for no day, and take no delta, until the day comes.
//
// The LIMIT of the probe and the OFFSET keep the planner from joins, which would read the deltas of all companies.
const foldQuotasSQL = `
WITH held AS MATERIALIZED (
    SELECT t.company_id, b.folded, coalesce(pg_snapshot_xmax(b.folded), '0') AS since, least(t.day, (now() AT TIME ZONE 'UTC')::date) AS day
    FROM quota_totals t CROSS JOIN LATERAL (
        SELECT CASE WHEN pg_snapshot_xmax(t.folded) <= pg_snapshot_xmax(pg_current_snapshot()) AND NOT $2 THEN t.folded END AS folded) b
    WHERE (SELECT true FROM quota_deltas d WHERE d.company_id = t.company_id AND d.xid >= coalesce(pg_snapshot_xmax(b.folded), '0') ORDER BY d.xid LIMIT 1)
    ORDER BY t.company_id LIMIT $1 FOR UPDATE OF t SKIP LOCKED
), fresh AS MATERIALIZED (
    SELECT n.at FROM held h CROSS JOIN LATERAL (
        SELECT d.ctid AS at FROM quota_deltas d WHERE d.company_id = h.company_id AND d.xid >= h.since OFFSET 0) n
    UNION ALL
    SELECT n.at FROM held h CROSS JOIN LATERAL pg_snapshot_xip(h.folded) x (xid) CROSS JOIN LATERAL (
        SELECT d.ctid AS at FROM quota_deltas d WHERE d.company_id = h.company_id AND d.xid = x.xid OFFSET 0) n
), taken AS (
    DELETE FROM quota_deltas d WHERE d.ctid = ANY (ARRAY(SELECT at FROM fresh)) RETURNING d.*, least(d.day, (now() AT TIME ZONE 'UTC')::date) AS counted
), sums AS (
    SELECT company_id, last, sum(emails) FILTER (WHERE counted = last) AS emails, sum(scheduled) AS scheduled, sum(body_bytes) AS body_bytes,
           sum(recipients) AS recipients, sum(suppressions) AS suppressions
    FROM (SELECT *, max(counted) OVER (PARTITION BY company_id) AS last FROM taken) t GROUP BY company_id, last
)
UPDATE quota_totals t SET
    folded = pg_current_snapshot(), folded_before = pg_snapshot_xmin(pg_current_snapshot()), day = greatest(h.day, s.last),
    emails = CASE WHEN h.day > s.last THEN t.emails WHEN h.day = s.last THEN t.emails + s.emails ELSE s.emails END,
    scheduled = t.scheduled + s.scheduled, body_bytes = t.body_bytes + s.body_bytes,
    recipients = t.recipients + s.recipients, suppressions = t.suppressions + s.suppressions
FROM sums s JOIN held h USING (company_id) WHERE t.company_id = s.company_id`

// FoldQuotas adds the deltas since the last round to the totals of at most limit companies, and returns the number of companies.
// Without all it may leave deltas of transactions that were open in a company's last round.
func (s *Store) FoldQuotas(ctx context.Context, limit int, all bool) (int, error) {
	result, err := s.db.Exec(ctx, foldQuotasSQL, limit, all)
	if err != nil {
		return 0, fmt.Errorf("fold quotas: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("fold quotas: %w", err)
	}
	return int(n), nil
}
