// Package interviews is an example: a recruiting system that shares the gateway's database and
// writes an interview's reminders in the transaction that writes the interview. It uses the gateway
// only through package outbox, and has its own table.
package interviews

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/outbox"
)

// Interview is a row of the system's own table.
type Interview struct {
	ID        int64
	Candidate string // an address
	At        time.Time
}

// Agenda books interviews.
type Agenda struct {
	DB        *sql.DB
	Reminders *outbox.Outbox
}

// The only interviewer has one interview at a time. The constraint is deferred, so that everything
// else is written before it is checked.
const prepareSQL = `
CREATE SCHEMA IF NOT EXISTS interviewops;
CREATE TABLE IF NOT EXISTS interviewops.interviews (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    candidate text NOT NULL,
    at        timestamptz NOT NULL,
    UNIQUE (at) DEFERRABLE INITIALLY DEFERRED
)`

// Prepare creates the system's own table.
func (a *Agenda) Prepare(ctx context.Context) error {
	if _, err := a.DB.ExecContext(ctx, prepareSQL); err != nil {
		return fmt.Errorf("prepare interviews: %w", err)
	}
	return nil
}

// Book writes an interview and its reminders in one transaction.
func (a *Agenda) Book(ctx context.Context, candidate string, at time.Time) (i Interview, written []Reminder, err error) {
	i = Interview{Candidate: candidate, At: at}
	err = a.inTx(ctx, func(tx *sql.Tx) error {
		const insert = `INSERT INTO interviewops.interviews (candidate, at) VALUES ($1, $2) RETURNING id`
		if err := tx.QueryRowContext(ctx, insert, i.Candidate, i.At).Scan(&i.ID); err != nil {
			return fmt.Errorf("insert interview: %w", err)
		}
		for _, r := range i.reminders() {
			if r.At.Before(time.Now()) {
				continue // an interview of today has no reminder on the day before
			}
			done, err := a.Reminders.Enqueue(ctx, tx, i.about(r.EventType), i.email(r))
			if err != nil {
				return fmt.Errorf("enqueue %s: %w", r.EventType, err)
			}
			r.Status = done.Status
			written = append(written, r)
		}
		return nil
	})
	return i, written, err
}

// Move changes the time of an interview and of its reminders. It returns the status of reminders
// for which it is too late.
func (a *Agenda) Move(ctx context.Context, id int64, at time.Time) (moved []Reminder, err error) {
	err = a.inTx(ctx, func(tx *sql.Tx) error {
		const update = `UPDATE interviewops.interviews SET at = $2 WHERE id = $1 RETURNING candidate`
		i := Interview{ID: id, At: at}
		if err := tx.QueryRowContext(ctx, update, id, at).Scan(&i.Candidate); err != nil {
			return fmt.Errorf("move interview: %w", err)
		}
		for _, r := range i.reminders() {
			is, err := a.remind(ctx, tx, i, r)
			if err != nil {
				return fmt.Errorf("move %s: %w", r.EventType, err)
			}
			moved = append(moved, is...)
		}
		return nil
	})
	return moved, err
}

// late is how long after its time a reminder is still correct.
const late = 5 * time.Minute

// remind changes the time of a moved interview's reminder. One whose time has passed is withdrawn:
// "tomorrow" would be wrong now. One that was withdrawn by an earlier move, or not written because
// it was too late, is written.
func (a *Agenda) remind(ctx context.Context, tx *sql.Tx, i Interview, r Reminder) ([]Reminder, error) {
	about := i.about(r.EventType)
	if time.Since(r.At) > late {
		done, err := a.Reminders.Cancel(ctx, tx, about)
		return withdrawn(done), err
	}
	done, err := a.Reminders.Reschedule(ctx, tx, about, r.At)
	if errors.Is(err, outbox.ErrNotFound) || err == nil && done.Status == email.Cancelled {
		written, err := a.Reminders.Enqueue(ctx, tx, about, i.email(r))
		r.Status = written.Status
		return []Reminder{r}, err
	}
	r.Status, r.TooLate = done.Status, !done.Moved
	return []Reminder{r}, err
}

// CallOff deletes an interview and withdraws its reminders.
func (a *Agenda) CallOff(ctx context.Context, id int64) (left []Reminder, err error) {
	err = a.inTx(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, `DELETE FROM interviewops.interviews WHERE id = $1`, id)
		if err != nil {
			return fmt.Errorf("delete interview: %w", err)
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(fmt.Errorf("there is no interview %d", id), err)
		}
		done, err := a.Reminders.Cancel(ctx, tx, Interview{ID: id}.about(""))
		if err != nil {
			return fmt.Errorf("cancel reminders: %w", err)
		}
		left = withdrawn(done)
		return nil
	})
	return left, err
}

func withdrawn(emails []outbox.Cancelled) (all []Reminder) {
	for _, e := range emails {
		all = append(all, Reminder{EventType: e.EventType, Status: e.Status, TooLate: !e.Cancelled})
	}
	return all
}

func (a *Agenda) inTx(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := a.DB.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback()
	if err := do(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// about identifies the email.
func (i Interview) about(eventType string) outbox.Aggregate {
	return outbox.Aggregate{Type: aggregateType, ID: strconv.FormatInt(i.ID, 10), EventType: eventType}
}
