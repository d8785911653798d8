package retention

import (
	"context"
	"fmt"
	"time"
)

// cleanRecipientsSQL finds rows by recipients_deleted and locks those that it deletes. It skips rows
// that another cleaner or a new import of the person has locked, and recipients with a pending
// import (by recipient_intakes_pkey): the row shows which imports are older than the deletion. The
// rows found are selected by an array of keys: for a join the planner may read all of recipients for
// each batch.
const cleanRecipientsSQL = `
DELETE FROM recipients WHERE id = ANY (ARRAY(
    SELECT r.id FROM recipients r
    WHERE r.deleted_at < now() - $1 * interval '1 ms' AND NOT EXISTS (SELECT FROM recipient_intakes i WHERE i.recipient_id = r.id)
    ORDER BY r.deleted_at LIMIT $2 FOR UPDATE SKIP LOCKED))`

// CleanRecipients deletes at most limit recipients who were deleted longer ago than age
// and returns their number. Their rows prevent emails that were accepted before from
// restoring them, so the age must be recipient.DeletedKept or more.
func (s *Store) CleanRecipients(ctx context.Context, age time.Duration, limit int) (int, error) {
	result, err := s.db.Exec(ctx, cleanRecipientsSQL, age.Milliseconds(), limit)
	if err != nil {
		return 0, fmt.Errorf("clean recipients: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("clean recipients: %w", err)
	}
	return int(n), nil
}
