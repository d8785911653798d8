package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"email-gateway/shared/outbox"
)

// reminders is one per program: outbox.New(outbox.Params{CompanyID: company}).
var reminders *outbox.Outbox

// Interview is what the emails are about, in the program's own tables.
type Interview struct {
	ID    string
	At    time.Time
	Email string
}

func (i Interview) about(eventType string) outbox.Aggregate {
	return outbox.Aggregate{Type: "interview", ID: i.ID, EventType: eventType}
}

// The interview and its reminder are both committed, or neither is.
func ExampleOutbox_Enqueue() {
	book := func(ctx context.Context, db *sql.DB, i Interview) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, `INSERT INTO interviews (id, at) VALUES ($1, $2)`, i.ID, i.At); err != nil {
			return fmt.Errorf("insert interview: %w", err)
		}
		_, err = reminders.Enqueue(ctx, tx, i.about("REMINDER_24H"), outbox.Email{
			To: i.Email, Subject: "Sua entrevista é amanhã", HTML: "<p>Até amanhã!</p>",
			Recipient: outbox.Recipient{ExternalID: i.ID},
			SendAt:    i.At.Add(-24 * time.Hour),
		})
		if err != nil {
			return fmt.Errorf("enqueue reminder: %w", err)
		}
		return tx.Commit()
	}
	_ = book
}

// If the email was already taken, the result has its status, and the program decides.
func ExampleOutbox_Reschedule() {
	move := func(ctx context.Context, tx *sql.Tx, i Interview) error {
		if _, err := tx.ExecContext(ctx, `UPDATE interviews SET at = $2 WHERE id = $1`, i.ID, i.At); err != nil {
			return fmt.Errorf("move interview: %w", err)
		}
		done, err := reminders.Reschedule(ctx, tx, i.about("REMINDER_24H"), i.At.Add(-24*time.Hour))
		if err != nil {
			return fmt.Errorf("move reminder: %w", err)
		}
		if !done.Moved {
			return fmt.Errorf("the reminder of the old date is %s", done.Status)
		}
		return nil
	}
	_ = move
}

// Without an event type all emails about the interview are cancelled.
func ExampleOutbox_Cancel() {
	callOff := func(ctx context.Context, tx *sql.Tx, i Interview) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM interviews WHERE id = $1`, i.ID); err != nil {
			return fmt.Errorf("delete interview: %w", err)
		}
		_, err := reminders.Cancel(ctx, tx, i.about(""))
		return err
	}
	_ = callOff
}
