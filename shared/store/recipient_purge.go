package store

import (
	"context"
	"fmt"
	"time"
)

// cleanRecipientsSQL finds by recipients_deleted and locks what it deletes; rows that
// another cleaner, or somebody who brings the person back, holds are left alone. A person
// whose news wait for RabbitMQ (by recipient_intakes_pkey) stays: the row says which of
// them come too late. Those it found are asked for by an array of keys: of a join the
// planner may think that reading all of recipients is cheaper, for each batch.
const cleanRecipientsSQL = `
DELETE FROM recipients WHERE id = ANY (ARRAY(
    SELECT r.id FROM recipients r
    WHERE r.deleted_at < now() - $1 * interval '1 ms' AND NOT EXISTS (SELECT FROM recipient_intakes i WHERE i.recipient_id = r.id)
    ORDER BY r.deleted_at LIMIT $2 FOR UPDATE SKIP LOCKED))`

// CleanRecipients deletes at most limit recipients who were deleted longer ago than age
// and says how many there were. Their rows keep emails that were accepted before from
// bringing them back, so the age must be longer than an email can be scheduled ahead.
func (s *Store) CleanRecipients(ctx context.Context, age time.Duration, limit int) (int, error) {
	result, err := s.exec(ctx, cleanRecipientsSQL, age.Milliseconds(), limit)
	if err != nil {
		return 0, fmt.Errorf("clean recipients: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("clean recipients: %w", err)
	}
	return int(n), nil
}
