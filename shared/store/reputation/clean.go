package reputation

import (
	"context"
	"fmt"
)

const (
	// cleanFeedbackSQL finds rows along reputation_feedback_age and locks those that it deletes.
	cleanFeedbackSQL = `
DELETE FROM reputation_feedback WHERE outbox_id = ANY (ARRAY(
    SELECT outbox_id FROM reputation_feedback WHERE sent_at < now() - $1 * interval '1 ms' ORDER BY sent_at LIMIT $2 FOR UPDATE SKIP LOCKED))`

	// cleanSendsSQL finds companies without feedback along company_reputation_counted, locks their rows, and
	// deletes their sends along the primary key. If they get feedback again, a check reads their sends
	// from the feed again.
	cleanSendsSQL = `
WITH quiet AS MATERIALIZED (
    SELECT company_id FROM company_reputation WHERE feed_position IS NOT NULL AND checked_at < now() - $1 * interval '1 ms'
    ORDER BY checked_at LIMIT $2 FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM reputation_sends WHERE company_id = ANY (ARRAY(SELECT company_id FROM quiet))
)
UPDATE company_reputation SET feed_position = NULL WHERE company_id = ANY (ARRAY(SELECT company_id FROM quiet))`
)

// Clean deletes feedback about emails that were sent longer ago than the longest window, and the sends
// of companies without feedback for as long: at most limit emails and companies. It returns how many
// rows of feedback it deleted.
func (s *Store) Clean(ctx context.Context, limit int) (int, error) {
	deleted, err := s.db.Exec(ctx, cleanFeedbackSQL, kept.Milliseconds(), limit)
	if err != nil {
		return 0, fmt.Errorf("delete old feedback: %w", err)
	}
	if _, err := s.db.Exec(ctx, cleanSendsSQL, kept.Milliseconds(), limit); err != nil {
		return 0, fmt.Errorf("delete sends of companies without feedback: %w", err)
	}
	n, err := deleted.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("delete old feedback: %w", err)
	}
	return int(n), nil
}
