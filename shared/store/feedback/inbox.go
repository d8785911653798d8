package feedback

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// takeFeedbackSQL inserts the notification, unless it exists. If another transaction is inserting it,
// the statement waits for that transaction. It locks the email's outbox row and log by primary key, in
// this order, as sql.Advance does, so that readFeedbackSQL reads values that do not change until the
// commit.
const takeFeedbackSQL = `
WITH taken AS (
    INSERT INTO ses_events (sns_message_id, kind, ses_message_id, outbox_id, attempt_id, payload, occurred_at)
    VALUES ($1, $2, nullif($3, ''), $4, $5, $6, $7)
    ON CONFLICT (sns_message_id) DO NOTHING RETURNING sns_message_id
), email AS MATERIALIZED (
    SELECT id FROM email_outbox
    WHERE id = $4 AND target = 'email:send' FOR UPDATE
), log AS MATERIALIZED (
    SELECT outbox_id FROM email_logs WHERE outbox_id = $4 FOR UPDATE
)
SELECT (SELECT count(*) FROM taken) AS taken, (SELECT count(*) FROM email) AS emails, (SELECT count(*) FROM log) AS logs`

// takeFeedback reports whether the notification is new.
func takeFeedback(ctx context.Context, tx *sqlx.Tx, f Feedback) (bool, error) {
	var found struct{ Taken, Emails, Logs int }
	err := tx.GetContext(ctx, &found, takeFeedbackSQL, f.NotificationID, pg.WithoutNUL(f.Kind), pg.WithoutNUL(f.SESMessageID),
		pg.OptionalUUID(f.OutboxID), pg.OptionalUUID(f.AttemptID), f.masked, pg.OptionalTime(f.OccurredAt))
	if err != nil {
		return false, fmt.Errorf("take notification: %w", pg.Translate(err))
	}
	return found.Taken == 1, nil
}

// markFeedbackSQL finds the row that this transaction has inserted by primary key.
const markFeedbackSQL = `UPDATE ses_events SET applied_at = now() WHERE sns_message_id = $1`

func markFeedback(ctx context.Context, tx *sqlx.Tx, f Feedback) error {
	if _, err := tx.ExecContext(ctx, markFeedbackSQL, f.NotificationID); err != nil {
		return fmt.Errorf("mark notification: %w", pg.Translate(err))
	}
	return nil
}

// cleanFeedbackSQL finds rows by ses_events_age and locks those that it deletes; it skips rows that
// another cleaner has locked. It selects the found rows by an array of keys, not by a join, for which
// the planner may read the whole table.
const cleanFeedbackSQL = `
DELETE FROM ses_events WHERE sns_message_id = ANY (ARRAY(
    SELECT sns_message_id FROM ses_events WHERE received_at < now() - $1 * interval '1 ms' ORDER BY received_at LIMIT $2 FOR UPDATE SKIP LOCKED))`

// CleanFeedback deletes at most limit notifications older than age and returns
// their number. Their events stay in the timelines.
func (s *Store) CleanFeedback(ctx context.Context, age time.Duration, limit int) (int, error) {
	result, err := s.db.Exec(ctx, cleanFeedbackSQL, age.Milliseconds(), limit)
	if err != nil {
		return 0, fmt.Errorf("clean notifications: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("clean notifications: %w", err)
	}
	return int(n), nil
}
