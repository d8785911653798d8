package retention

import (
	"context"
	"fmt"
	"time"
)

// templateBatch bounds the mailings of one statement: the check of a mailing may read as many
// outbox rows as the mailing has emails.
const templateBatch = 20

// eraseTemplatesSQL scans mailings_templates_kept, whose predicate is its condition, and locks the
// rows that it blanks; a mailing that another transaction has locked is left for the next round. Companies are
// looked up by company_retention_pkey. Templates stay while an email of the mailing can be sent
// again (a range of email_outbox_pkey), and those of a failed mailing while it can be resumed.
const eraseTemplatesSQL = `
WITH past AS MATERIALIZED (
    SELECT m.id FROM mailings m LEFT JOIN company_retention r ON r.company_id = m.company_id
    WHERE (m.html <> '' OR m.text_body IS NOT NULL) AND m.status IN ('COMPLETED', 'CANCELLED', 'FAILED')
      AND (m.status <> 'FAILED' OR m.entries_deleted_at IS NOT NULL) AND m.settling IS NULL
      AND coalesce(m.completed_at, m.updated_at) < now() - coalesce(r.bodies_days * interval '1 day', $1 * interval '1 ms')
      AND NOT EXISTS (SELECT FROM email_outbox o JOIN dispatch_lanes l ON l.id = o.lane_id
                      WHERE o.id >= m.first_entry AND o.id <= m.last_entry AND l.mailing_id = m.id AND o.body_erased_at IS NULL)
    ORDER BY coalesce(m.completed_at, m.updated_at) LIMIT $2
    FOR UPDATE OF m SKIP LOCKED
)
UPDATE mailings m SET html = '', text_body = NULL, template_variables = NULL FROM past WHERE m.id = past.id`

// EraseTemplates blanks HTML and text of at most limit mailings that ended longer ago than age, the
// retention of bodies, or than their company's own retention; age 0 = only companies with such a
// retention.
func (s *Store) EraseTemplates(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	limit = min(limit, templateBatch)
	result, err := s.db.Exec(ctx, eraseTemplatesSQL, milliseconds(age), limit)
	if err != nil {
		return Cleaned{}, fmt.Errorf("erase templates: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return Cleaned{}, fmt.Errorf("erase templates: %w", err)
	}
	return Cleaned{Count: int(n), More: int(n) == limit}, nil
}
