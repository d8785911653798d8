package deadletter

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
)

// Task is a task that gave up without an email to write it on: undecodable, or
// naming an email that does not exist.
type Task struct {
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

// DeadLetterTask writes the dead letter of such a task.
func (s *Store) DeadLetterTask(ctx context.Context, t Task) error {
	var outboxID *uuid.UUID
	if id, err := uuid.Parse(t.TaskID); err == nil {
		outboxID = &id
	}
	_, err := s.db.Exec(ctx, insertDeadTaskSQL,
		uuid.New(), t.Target, t.Reason, pg.WithoutNUL(t.Detail), pg.JSON(t.Payload), outboxID)
	if err != nil {
		return fmt.Errorf("dead-letter task: %w", err)
	}
	return nil
}

// Retention of dead letters, resolved or not. An email's log keeps its outcome; a failed mailing
// job or recipient import is recorded in its dead letter only.
const (
	EmailLettersKept = 7 * 24 * time.Hour
	BulkLettersKept  = 30 * 24 * time.Hour
)

// OfEmailSQL selects the dead letters of emails, whatever their queue: the predicate of
// the index dead_letters_of_emails.
const OfEmailSQL = `(target NOT IN ('` + email.TargetMailing + `', '` + email.TargetRecipients + `'))`

// cleanEmailLettersSQL finds by dead_letters_of_emails, cleanBulkLettersSQL by
// dead_letters_age: what is as old as that goes, whatever it is. Both lock what they delete; rows that another cleaner holds are left to it. Those found are asked for
// by an array of keys, not by a join, for which all of the table may be read.
const (
	cleanEmailLettersSQL = `
DELETE FROM dead_letters WHERE id = ANY (ARRAY(
    SELECT id FROM dead_letters WHERE ` + OfEmailSQL + ` AND created_at < now() - $1 * interval '1 ms'
    ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED))`
	cleanBulkLettersSQL = `
DELETE FROM dead_letters WHERE id = ANY (ARRAY(
    SELECT id FROM dead_letters WHERE created_at < now() - $1 * interval '1 ms'
    ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED))`
)

// CleanEmailLetters deletes at most limit dead letters of emails that are older than their retention and
// returns their number.
func (s *Store) CleanEmailLetters(ctx context.Context, limit int) (int, error) {
	return s.cleanLetters(ctx, cleanEmailLettersSQL, EmailLettersKept, limit)
}

// CleanBulkLetters is CleanEmailLetters for those of mailings and recipient imports.
func (s *Store) CleanBulkLetters(ctx context.Context, limit int) (int, error) {
	return s.cleanLetters(ctx, cleanBulkLettersSQL, BulkLettersKept, limit)
}

func (s *Store) cleanLetters(ctx context.Context, statement string, age time.Duration, limit int) (int, error) {
	result, err := s.db.Exec(ctx, statement, age.Milliseconds(), limit)
	if err != nil {
		return 0, fmt.Errorf("clean dead letters: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("clean dead letters: %w", err)
	}
	return int(n), nil
}
