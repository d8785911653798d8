package recipient

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// returnIntakesSQL reads $4 rows of recipient_intakes, which contains only the imports that no worker has applied, by primary key
// from behind $2, $3 on, and looks up the outbox row of each by email_outbox_pkey. It locks those rows and skips
// locked ones. For a join, or IN, the planner may choose the other direction and read ten million
// emails every minute to find no import. Each return doubles the time until the next one, up to 64
// times the age: a message that only waits in a long queue, or that the database refuses
// temporarily, gets few duplicates.
const returnIntakesSQL = `
WITH page AS MATERIALIZED (
    SELECT recipient_id, outbox_id FROM recipient_intakes
    WHERE (recipient_id, outbox_id) > ($2::uuid, $3::uuid) ORDER BY recipient_id, outbox_id LIMIT $4
), returned AS (
    UPDATE email_outbox SET status = 'PENDING', processed_at = NULL, next_at = now(), attempts = attempts + 1
    WHERE id = ANY (ARRAY(
        SELECT lost.id FROM page i CROSS JOIN LATERAL (
            SELECT o.id FROM email_outbox o
            WHERE o.id = i.outbox_id AND o.target = 'recipients.upsert' AND o.status = 'PUBLISHED'
              AND o.processed_at < now() - $1 * interval '1 ms' * (1 << least(o.attempts, 6))
            LIMIT 1 FOR UPDATE SKIP LOCKED
        ) lost))
    RETURNING 1
)
SELECT (SELECT count(*) FROM returned) AS returned, last.recipient_id, last.outbox_id
FROM (SELECT) one LEFT JOIN (
    SELECT recipient_id, outbox_id FROM page ORDER BY recipient_id, outbox_id OFFSET $4 - 1
) last ON true`

// Intake is the position of an import among those that are not applied.
type Intake struct {
	Recipient uuid.UUID
	Outbox    uuid.UUID
}

// ReturnIntakes looks at the next page imports behind after, and makes the dispatcher republish those that were
// published longer ago than age and are not applied. It returns their number, and where to continue: the zero Intake
// after the last one. A message that is delivered twice has no further effect.
func (s *Store) ReturnIntakes(ctx context.Context, age time.Duration, after Intake, page int) (returned int, next Intake, err error) {
	var row struct {
		Returned  int           `db:"returned"`
		Recipient uuid.NullUUID `db:"recipient_id"`
		Outbox    uuid.NullUUID `db:"outbox_id"`
	}
	err = pg.Write(func(args []any) error { return s.db.GetContext(ctx, &row, returnIntakesSQL, args...) },
		age.Milliseconds(), after.Recipient, after.Outbox, page)
	if err != nil {
		return 0, Intake{}, fmt.Errorf("return intakes: %w", err)
	}
	return row.Returned, Intake{row.Recipient.UUID, row.Outbox.UUID}, nil
}
