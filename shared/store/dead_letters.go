package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// DeadTask is a task that gave up without an email to write it on: undecodable, or
// naming an email that does not exist.
type DeadTask struct {
	Target  string
	Reason  string // a code
	Detail  string
	Payload []byte // any bytes: kept as JSON if it is some, else as a JSON string
	TaskID  string
}

// insertDeadTaskSQL locks nothing but its own row, and may be run twice.
const insertDeadTaskSQL = `
INSERT INTO dead_letters (id, target, reason, last_error, payload, outbox_id) VALUES ($1, $2, $3, nullif($4, ''), $5, $6)
ON CONFLICT (id) DO NOTHING`

// BuryTask writes the dead letter of such a task.
func (s *Store) BuryTask(ctx context.Context, t DeadTask) error {
	var outboxID *uuid.UUID
	if id, err := uuid.Parse(t.TaskID); err == nil {
		outboxID = &id
	}
	_, err := s.exec(ctx, insertDeadTaskSQL,
		uuid.New(), t.Target, t.Reason, withoutNUL(t.Detail), asJSON(t.Payload), outboxID)
	if err != nil {
		return fmt.Errorf("bury task: %w", err)
	}
	return nil
}

// cleanDeadLettersSQL finds by dead_letters_age and locks what it deletes; rows that
// another cleaner holds are left to it. Those it found are asked for by an array of keys,
// not by a join, for which all of the table may be read.
const cleanDeadLettersSQL = `
DELETE FROM dead_letters WHERE id = ANY (ARRAY(
    SELECT id FROM dead_letters WHERE created_at < now() - $1 * interval '1 ms' ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED))`

// CleanDeadLetters deletes at most limit dead letters older than age and says how many
// there were.
func (s *Store) CleanDeadLetters(ctx context.Context, age time.Duration, limit int) (int, error) {
	result, err := s.exec(ctx, cleanDeadLettersSQL, age.Milliseconds(), limit)
	if err != nil {
		return 0, fmt.Errorf("clean dead letters: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("clean dead letters: %w", err)
	}
	return int(n), nil
}
