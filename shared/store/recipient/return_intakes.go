package recipient

import (
	"context"
	"fmt"
	"time"
)

// returnIntakesSQL reads recipient_intakes, which contains only the imports that no worker has
// applied, and looks up the outbox row of each by email_outbox_pkey. It locks those rows and skips
// locked ones. For a join, or IN, the planner may choose the other direction and read ten million
// emails every minute to find no import. Each return doubles the time until the next one, up to 64
// times the age: a message that only waits in a long queue, or that the database refuses
// temporarily, gets few duplicates.
const returnIntakesSQL = `
UPDATE email_outbox SET status = 'PENDING', processed_at = NULL, next_at = now(), attempts = attempts + 1
WHERE id = ANY (ARRAY(
    SELECT lost.id FROM recipient_intakes i CROSS JOIN LATERAL (
        SELECT o.id FROM email_outbox o
        WHERE o.id = i.outbox_id AND o.target = 'recipients.upsert' AND o.status = 'PUBLISHED'
          AND o.processed_at < now() - $1 * interval '1 ms' * (1 << least(o.attempts, 6))
        LIMIT 1 FOR UPDATE SKIP LOCKED
    ) lost LIMIT $2))`

// ReturnIntakes makes the dispatcher republish at most limit recipient imports that were published
// longer ago than age and are not applied. It returns their number. A message that is delivered
// twice has no further effect.
func (s *Store) ReturnIntakes(ctx context.Context, age time.Duration, limit int) (int, error) {
	result, err := s.db.Exec(ctx, returnIntakesSQL, age.Milliseconds(), limit)
	if err != nil {
		return 0, fmt.Errorf("return intakes: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("return intakes: %w", err)
	}
	return int(n), nil
}
