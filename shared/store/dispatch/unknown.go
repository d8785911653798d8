package dispatch

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// unknownCausesSQL reads the timelines of some emails by the leading column of the primary key of email_events, in the
// partitions between $2 and $3, and locks nothing. The newest OUTCOME_UNKNOWN event is that of the last attempt.
const unknownCausesSQL = `
SELECT DISTINCT ON (email_log_id) email_log_id, coalesce(metadata ->> 'errorCategory', '') AS error_category,
       coalesce(nullif(metadata ->> 'originalCode', ''), metadata ->> 'errorCode', '') AS original_code,
       coalesce(metadata ->> 'inOutage' = 'true', false) AS in_outage
FROM email_events
WHERE email_log_id = ANY ($1::uuid[]) AND email_log_id >= $2 AND email_log_id <= $3 AND type = 'OUTCOME_UNKNOWN'
ORDER BY email_log_id, seq DESC`

// readCauses sets the cause of each outcome from its OUTCOME_UNKNOWN event.
func (s *Store) readCauses(ctx context.Context, unknown []UnknownOutcome) error {
	if len(unknown) == 0 {
		return nil
	}
	var causes []struct {
		ID           uuid.UUID `db:"email_log_id"`
		Category     string    `db:"error_category"`
		OriginalCode string    `db:"original_code"`
		InOutage     bool      `db:"in_outage"`
	}
	ids := make([]uuid.UUID, len(unknown))
	at := make(map[uuid.UUID]int, len(unknown))
	for i, u := range unknown {
		ids[i], at[u.ID] = u.ID, i
	}
	first, last := pg.IDRange(unknown, func(u *UnknownOutcome) uuid.UUID { return u.ID })
	if err := s.db.SelectContext(ctx, &causes, unknownCausesSQL, pg.UUIDArray(ids), first, last); err != nil {
		return fmt.Errorf("read why outcomes are unknown: %w", pg.Translate(err))
	}
	for _, c := range causes {
		u := &unknown[at[c.ID]]
		u.Category, u.OriginalCode, u.InOutage = c.Category, c.OriginalCode, c.InOutage
	}
	return nil
}
