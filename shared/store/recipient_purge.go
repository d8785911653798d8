package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// DeletedKept is the minimum retention of a deleted recipient's row: an email usually waits at most a
// year and its deadline. One that waits longer, because it was moved again
// and again, was replayed late, or its mailing was paused, creates no recipient any more
// (peopleFrom): a missing row may have been that of a deleted person.
const DeletedKept = 367 * 24 * time.Hour

// peopleFrom is the first id of an email or an entry that may make a recipient: those
// before it were made longer ago than DeletedKept, by the clock of a process, as ids are.
// To work it out in the statement would cost 25 to 90 µs each time.
func peopleFrom() uuid.UUID {
	// A UUIDv7 begins with milliseconds, in 48 bits.
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], uint64(time.Now().Add(-DeletedKept).UnixMilli())<<16) //nolint:gosec // our time is after 1970
	return id
}

// cleanRecipientsSQL finds by recipients_deleted and locks what it deletes; rows that
// another cleaner or a new import of the person has locked are skipped. A person
// with a pending import (by recipient_intakes_pkey) stays: the row shows which imports
// are older than the deletion. The rows found are selected by an array of keys: for a join the
// planner may think that reading all of recipients is cheaper, for each batch.
const cleanRecipientsSQL = `
DELETE FROM recipients WHERE id = ANY (ARRAY(
    SELECT r.id FROM recipients r
    WHERE r.deleted_at < now() - $1 * interval '1 ms' AND NOT EXISTS (SELECT FROM recipient_intakes i WHERE i.recipient_id = r.id)
    ORDER BY r.deleted_at LIMIT $2 FOR UPDATE SKIP LOCKED))`

// CleanRecipients deletes at most limit recipients who were deleted longer ago than age
// and returns their number. Their rows prevent emails that were accepted before from
// restoring them, so the age must be DeletedKept or more.
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
