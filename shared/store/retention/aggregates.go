package retention

import (
	"context"
	"time"
)

// purgeAggregatesSQL reads the next keys along outbox_aggregates_outbox and deletes those whose
// email is no longer in the outbox or in the log (by their primary keys). It reads all keys older
// than the shortest retention of logs, because a key does not contain its company.
const purgeAggregatesSQL = `
WITH seen AS MATERIALIZED (
    SELECT a.outbox_id AS id FROM outbox_aggregates a
    WHERE a.outbox_id > $1 AND a.outbox_id < ` + youngest + `logs_days` + ofAll + `
    ORDER BY a.outbox_id LIMIT $3
), gone AS (
    DELETE FROM outbox_aggregates a USING seen
    WHERE a.outbox_id = seen.id AND NOT EXISTS (SELECT FROM email_outbox o WHERE o.id = seen.id)
      AND NOT EXISTS (SELECT FROM email_logs l WHERE l.outbox_id = seen.id)
    RETURNING a.outbox_id
)` + scannedSQL

// PurgeAggregates reads the next limit keys of emails accepted longer ago than age, the retention
// of logs, or than the shortest retention of a company, and deletes those of emails that are no
// longer stored. age 0 = only the retentions of companies apply.
func (s *Store) PurgeAggregates(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	return s.scan(ctx, scanAggregates, everybody, age, limit, purgeAggregatesSQL)
}
