package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
)

// rescheduleSQL locks one row by primary key and moves it while no worker has it. The
// row becomes PENDING, so that the dispatcher acts when the time comes: a task that
// stands on the queue finds at the fence that the email is not due, and goes. The
// deadline moves along; an email of a mailing that was not tried yet has none.
const rescheduleSQL = `
WITH found AS MATERIALIZED (
    SELECT o.id, o.status, l.mailing_id IS NOT NULL AND o.attempts = 0 AS without_deadline
    FROM email_outbox o LEFT JOIN dispatch_lanes l ON l.id = o.lane_id
    WHERE o.id = $1 AND o.company_id = $2 AND o.target = 'email:send'
    FOR UPDATE OF o
), moved AS (
    UPDATE email_outbox o SET status = 'PENDING', next_at = greatest(now(), $3),
        expires_at = CASE WHEN f.without_deadline THEN o.expires_at ELSE greatest(now(), $3) + $4 * interval '1 ms' END
    FROM found f WHERE o.id = f.id AND f.status IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED')
    RETURNING o.id
)
SELECT m.id IS NOT NULL AS applied, CASE WHEN m.id IS NULL THEN f.status ELSE 'PENDING' END AS status
FROM found f LEFT JOIN moved m ON m.id = f.id`

// Reschedule moves the company's email to another time (zero = now), with a deadline ttl
// later. Applied is false when it is too late: Status says why. ErrNotFound: there is no
// such email, or its row is not kept any more. ErrAggregateBusy: a program's open
// transaction holds it.
func (s *Store) Reschedule(ctx context.Context, company, id uuid.UUID, sendAt time.Time, ttl time.Duration) (Advanced, error) {
	var at *time.Time
	if !sendAt.IsZero() {
		at = &sendAt
	}
	type row struct {
		Applied bool         `db:"applied"`
		Status  email.Status `db:"status"`
	}
	rows, err := boundedly(ctx, s, func(tx *sqlx.Tx) (rows []row, err error) {
		err = tx.SelectContext(ctx, &rows, rescheduleSQL, id, company, at, ttl.Milliseconds())
		return rows, translate(err)
	})
	if err == nil && len(rows) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Advanced{}, fmt.Errorf("reschedule email: %w", err)
	}
	return Advanced{Applied: rows[0].Applied, Status: rows[0].Status}, nil
}
