package feedback

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// groupScalars are the scalar parameters of grouped statements about notifications.
type groupScalars struct {
	count       int
	first, last uuid.UUID // of the emails
}

// scalarsOf leaves out notifications that name no email: their zero id would include all partitions.
func scalarsOf[T any](rows []T, id func(*T) uuid.UUID) groupScalars {
	emails := make([]uuid.UUID, 0, len(rows))
	for i := range rows {
		if email := id(&rows[i]); email != uuid.Nil {
			emails = append(emails, email)
		}
	}
	first, last := pg.IDRange(emails, func(email *uuid.UUID) uuid.UUID { return *email })
	return groupScalars{len(rows), first, last}
}

// scalars describes groupScalars.
var scalars = []pg.Scalar[groupScalars]{
	pg.One("count", "bigint", func(s groupScalars) any { return s.count }),
	pg.One("first_id", "uuid", func(s groupScalars) any { return s.first }),
	pg.One("last_id", "uuid", func(s groupScalars) any { return s.last }),
}

func emailOf(f *Feedback) uuid.UUID { return f.OutboxID }

// takeParameters are the parameters of take_feedback.sql and take_free_feedback.sql.
var takeParameters = pg.Parameters[groupScalars, Feedback]{
	Scalars: scalars,
	Columns: []pg.Column[Feedback]{
		pg.Each("notification_id", "text", pg.Texts, func(f *Feedback) string { return f.NotificationID }),
		pg.Each("kind", "text", pg.Texts, func(f *Feedback) string { return f.Kind }),
		pg.Each("ses_message_id", "text", pg.OptionalTexts, func(f *Feedback) string { return f.SESMessageID }),
		pg.Each("outbox_id", "uuid", pg.OptionalUUIDs, emailOf),
		pg.Each("attempt_id", "uuid", pg.OptionalUUIDs, func(f *Feedback) uuid.UUID { return f.AttemptID }),
		pg.Each("company_id", "uuid", pg.OptionalUUIDs, func(f *Feedback) uuid.UUID { return f.CompanyID }),
		pg.Each("installation_id", "uuid", pg.OptionalUUIDs, func(f *Feedback) uuid.UUID { return f.InstallationID }),
		pg.Each("payload", "jsonb", pg.JSONBs, func(f *Feedback) []byte { return f.masked }),
		pg.Each("occurred_at", "timestamptz", pg.Times, func(f *Feedback) time.Time { return f.OccurredAt }),
	},
}

// takeAll inserts the notifications that match an email with a statement. Repeated, Unmatched and locked are set in their
// results.
func takeAll(ctx context.Context, tx *sqlx.Tx, take *pg.Prepared, all []Feedback) ([]recorded, error) {
	var rows []struct {
		NotificationID string    `db:"notification_id"`
		OutboxID       uuid.UUID `db:"outbox_id"`
		Repeated       bool      `db:"repeated"`
		Locked         bool      `db:"locked"`
	}
	err := take.SelectIn(ctx, tx, &rows, takeParameters.Arguments(scalarsOf(all, emailOf), all)...)
	if err != nil {
		return nil, fmt.Errorf("take notifications: %w", pg.Translate(err))
	}
	locked, repeated := make(map[uuid.UUID]bool), make(map[string]bool) // repeated has all that match
	for _, row := range rows {
		if row.Locked {
			locked[row.OutboxID] = true
		} else {
			repeated[row.NotificationID] = row.Repeated
		}
	}
	results := make([]recorded, len(all))
	for i, f := range all {
		r := &results[i]
		if r.locked = locked[f.OutboxID]; r.locked {
			continue
		}
		var matched bool
		r.Repeated, matched = repeated[f.NotificationID]
		r.Unmatched = !matched
	}
	return results, nil
}

// markFeedbackSQL finds the rows that this transaction has inserted by primary key.
const markFeedbackSQL = `UPDATE ses_events SET applied_at = now() WHERE sns_message_id = ANY ($1)`

func markAll(ctx context.Context, tx *sqlx.Tx, all []Feedback) error {
	if len(all) == 0 {
		return nil
	}
	ids := make([]string, len(all))
	for i, f := range all {
		ids[i] = f.NotificationID
	}
	if _, err := tx.ExecContext(ctx, markFeedbackSQL, pg.TextArray(ids)); err != nil {
		return fmt.Errorf("mark notifications: %w", pg.Translate(err))
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
