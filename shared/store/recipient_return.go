package store

import (
	"context"
	"fmt"
	"time"
)

// returnIntakesSQL finds the intakes that nobody has written down by reading
// recipient_intakes, which holds only what is on its way, and their outbox rows by
// email_outbox_pkey, one after the other; it locks those rows, leaving out what somebody else
// holds. A join, or IN, would be the planner's to turn around, which then went through ten
// million emails every minute to find no intake. Each return doubles how long the next one is
// waited for, up to 64 times: a message that only stands in a long queue, or that the database
// refuses for now, gets few twins.
const returnIntakesSQL = `
UPDATE email_outbox SET status = 'PENDING', processed_at = NULL, next_at = now(), attempts = attempts + 1
WHERE id = ANY (ARRAY(
    SELECT lost.id FROM recipient_intakes i CROSS JOIN LATERAL (
        SELECT o.id FROM email_outbox o
        WHERE o.id = i.outbox_id AND o.target = 'recipients.upsert' AND o.status = 'PUBLISHED'
          AND o.processed_at < now() - $1 * interval '1 ms' * (1 << least(o.attempts, 6))
        LIMIT 1 FOR UPDATE SKIP LOCKED
    ) lost LIMIT $2))`

// ReturnIntakes gives at most limit recipients whose message RabbitMQ took longer ago than
// age, and that are not written down, back to the dispatcher. It says how many there were.
// A message that comes twice changes nothing.
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
