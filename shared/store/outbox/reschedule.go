package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/pgtext"
	"email-gateway/shared/store/quota"
)

// rescheduleSQL locks one row by primary key and moves it unless a worker has claimed it. The row becomes PENDING, so
// that the dispatcher enqueues it at the new time. A task that is still queued for the old time cannot claim the email,
// because it is not due, and is acknowledged. The deadline moves too; an email of a mailing that was not tried yet has
// none, or, if a program of the previous release replayed or released it, that of an earlier attempt.
//
// The statement writes the event RESCHEDULED with both times, and inserts or updates the email_logs row (by primary
// key). If the time does not change, or has passed both before and after, it writes neither. It reads the log in its
// own snapshot: see sql.Advance for the errors that may follow.
const rescheduleSQL = `
WITH found AS MATERIALIZED (
    SELECT o.id, o.status, o.next_at AS was_due, greatest(now(), $3) <> greatest(now(), o.next_at) AS changed,
           CASE WHEN l.mailing_id IS NOT NULL AND o.attempts = 0 THEN o.expires_at END AS earliest_deadline
    FROM email_outbox o LEFT JOIN dispatch_lanes l ON l.id = o.lane_id
    WHERE o.id = $1 AND o.company_id = $2 AND o.target = 'email:send'
    FOR UPDATE OF o
), moved AS (
    UPDATE email_outbox o SET status = 'PENDING', enqueued_at = NULL, next_at = greatest(now(), $3),
        expires_at = greatest(f.earliest_deadline, greatest(now(), $3) + $4 * interval '1 ms')
    FROM found f WHERE o.id = f.id AND f.status IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED')
    RETURNING o.*, f.was_due, f.changed
), logged AS (
    INSERT INTO email_logs (outbox_id, company_id, recipient_id, recipient, subject, status, attempts, throttles, request_id, external_id, tags,
                            possible_duplicate, expires_at, created_at, event_seq, last_event, send_at)
    SELECT m.id, m.company_id, (m.payload #>> '{recipient,recipientId}')::uuid, m.payload ->> 'to', m.payload ->> 'subject', m.status, m.attempts,
           m.throttles, m.request_id, m.payload #>> '{recipient,externalId}',
           ARRAY(SELECT jsonb_array_elements_text(coalesce(m.payload -> 'tags', '[]'))), m.possible_duplicate, m.expires_at, m.created_at,
           1, 'RESCHEDULED', m.next_at
    FROM moved m WHERE m.changed
    ON CONFLICT (outbox_id) DO UPDATE SET
        status = excluded.status, expires_at = excluded.expires_at, event_seq = email_logs.event_seq + 1, last_event = excluded.last_event,
        send_at = excluded.send_at
), timeline AS (
    INSERT INTO email_events (email_log_id, seq, previous, type, metadata, created_at)
    SELECT m.id, coalesce(l.event_seq, 0) + 1, l.last_event, 'RESCHEDULED', $5::jsonb || jsonb_build_object(
               'oldSendAt', to_char(m.was_due AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
               'newSendAt', to_char(m.next_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')), $6
    FROM moved m LEFT JOIN email_logs l ON l.outbox_id = m.id AND l.outbox_id = $1
    WHERE m.changed
)
SELECT m.id IS NOT NULL AS applied, CASE WHEN m.id IS NULL THEN f.status ELSE 'PENDING' END AS status
FROM found f LEFT JOIN moved m ON m.id = f.id`

// scheduleSQL counts an email that was due and is moved to a later time as scheduled, or refuses the move if the quota
// is used up: see email_gateway_schedule in the migrations. If the company is close to the quota, it locks the
// company's quotas.
const scheduleSQL = `SELECT email_gateway_schedule($1, $2, $3)`

// Move names an email and the time to move it to.
type Move struct {
	CompanyID uuid.UUID
	ID        uuid.UUID
	SendAt    time.Time      // zero = now
	TTL       time.Duration  // from the new time to the deadline
	At        time.Time      // of the event
	By        map[string]any // the event's metadata, to which both times are added
}

// MoveIn moves the company's email to another time in the transaction. If Applied is false, it is too late, and Status
// is the reason. pg.ErrNotFound: there is no such email, or its row is no longer stored. *quota.Error: the email was
// due, and the quota of scheduled emails is used up. pg.ErrBusy: a lock timed out.
func MoveIn(ctx context.Context, tx *sqlx.Tx, m Move) (Advanced, error) {
	var at *time.Time
	if !m.SendAt.IsZero() {
		at = &m.SendAt
	}
	by, err := json.Marshal(m.By)
	if err != nil {
		return Advanced{}, fmt.Errorf("encode metadata: %w", err)
	}
	if at != nil {
		switch _, err := tx.ExecContext(ctx, scheduleSQL, m.CompanyID, m.ID, at); {
		case pg.IsLockTimeout(err):
			return Advanced{}, fmt.Errorf("%w: %w", pg.ErrBusy, err)
		case err != nil:
			return Advanced{}, quota.Refusal(pg.Translate(err))
		}
	}
	var moved struct {
		Applied bool         `db:"applied"`
		Status  email.Status `db:"status"`
	}
	if err := tx.GetContext(ctx, &moved, rescheduleSQL, m.ID, m.CompanyID, at, m.TTL.Milliseconds(), string(pgtext.WithoutEscapedNUL(by)), m.At); err != nil {
		return Advanced{}, pg.Translate(err)
	}
	return Advanced{Applied: moved.Applied, Status: moved.Status}, nil
}
