package deadletter

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pgtext"
)

// Task is a task that failed and has no email to record it on: its payload cannot be decoded, or its email does not exist.
type Task struct {
	Target  string
	Reason  string // a code
	Detail  string
	Payload []byte // any bytes: stored as JSON if they are valid JSON, else as a JSON string
	TaskID  string
}

// insertDeadTaskSQL locks nothing but its own row, and may be run twice.
const insertDeadTaskSQL = `
INSERT INTO dead_letters (id, target, reason, last_error, payload, outbox_id) VALUES ($1, $2, $3, nullif($4, ''), $5, $6)
ON CONFLICT (id) DO NOTHING`

// DeadLetterTask writes the dead letter of a task.
func (s *Store) DeadLetterTask(ctx context.Context, t Task) error {
	var outboxID *uuid.UUID
	if id, err := uuid.Parse(t.TaskID); err == nil {
		outboxID = &id
	}
	_, err := s.db.Exec(ctx, insertDeadTaskSQL,
		uuid.New(), t.Target, t.Reason, pgtext.WithoutNUL(t.Detail), pgtext.JSON(t.Payload), outboxID)
	if err != nil {
		return fmt.Errorf("dead-letter task: %w", err)
	}
	return nil
}

// Retention of dead letters, resolved or not. The log of an email keeps its outcome; a failed mailing job or recipient import
// is recorded in its dead letter only.
const (
	EmailLettersKept = 7 * 24 * time.Hour
	BulkLettersKept  = 30 * 24 * time.Hour
)

// OfEmailSQL selects the dead letters of emails in all queues. It is the predicate of the index dead_letters_of_emails.
const OfEmailSQL = `(target NOT IN ('` + email.TargetMailing + `', '` + email.TargetRecipients + `'))`

// cleanEmailLettersSQL finds rows by dead_letters_of_emails, cleanBulkLettersSQL by dead_letters_age: it deletes all kinds,
// since older dead letters of emails have expired too. Both lock the rows they delete and skip rows that another cleaner has
// locked. The outer statement selects by an array of ids: with a join, Postgres may read the whole table.
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

// CleanEmailLetters deletes at most limit dead letters of emails that are older than EmailLettersKept, and returns their
// number.
func (s *Store) CleanEmailLetters(ctx context.Context, limit int) (int, error) {
	return s.cleanLetters(ctx, cleanEmailLettersSQL, EmailLettersKept, limit)
}

// CleanBulkLetters deletes at most limit dead letters that are older than BulkLettersKept, and returns their number.
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
