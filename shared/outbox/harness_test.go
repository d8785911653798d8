package outbox_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/outbox"
	"email-gateway/shared/store/storetest"
)

// agenda is a program that shares the gateway's database: a table of interviews and the outbox for
// their reminders.
type agenda struct {
	storetest.Database
	company   uuid.UUID
	reminders *outbox.Outbox
}

func newAgenda(t *testing.T) *agenda {
	t.Helper()
	a := &agenda{Database: storetest.New(t)}
	a.company = a.Company(t)
	a.exec(t, `CREATE TABLE interviews (id text PRIMARY KEY, at timestamptz NOT NULL)`)
	var err error
	if a.reminders, err = outbox.New(outbox.Params{CompanyID: a.company}); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *agenda) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := a.SQL.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

// begin starts a transaction that is rolled back at the end of the test, unless it is committed.
func (a *agenda) begin(t *testing.T) *sql.Tx {
	t.Helper()
	tx, err := a.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func commit(t *testing.T, tx *sql.Tx) {
	t.Helper()
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// inTx runs a function in its own transaction.
func inTx[T any](t *testing.T, a *agenda, do func(tx *sql.Tx) (T, error)) T {
	t.Helper()
	tx := a.begin(t)
	done, err := do(tx)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, tx)
	return done
}

func (a *agenda) enqueue(t *testing.T, about outbox.Aggregate, e outbox.Email) outbox.Enqueued {
	t.Helper()
	return inTx(t, a, func(tx *sql.Tx) (outbox.Enqueued, error) { return a.reminders.Enqueue(t.Context(), tx, about, e) })
}

func (a *agenda) reschedule(t *testing.T, about outbox.Aggregate, at time.Time) outbox.Rescheduled {
	t.Helper()
	return inTx(t, a, func(tx *sql.Tx) (outbox.Rescheduled, error) {
		return a.reminders.Reschedule(t.Context(), tx, about, at)
	})
}

func (a *agenda) cancel(t *testing.T, about outbox.Aggregate) []outbox.Cancelled {
	t.Helper()
	return inTx(t, a, func(tx *sql.Tx) ([]outbox.Cancelled, error) { return a.reminders.Cancel(t.Context(), tx, about) })
}

// row has the columns of an outbox row that the tests check.
type row struct {
	Status  string
	Next    time.Time
	Expires time.Time
}

func (a *agenda) row(t *testing.T, id uuid.UUID) (r row) {
	t.Helper()
	err := a.SQL.QueryRowContext(t.Context(), `SELECT status, next_at, expires_at FROM email_outbox WHERE id = $1`, id).Scan(&r.Status, &r.Next, &r.Expires)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (a *agenda) count(t *testing.T, query string) (n int) {
	t.Helper()
	if err := a.SQL.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// reminder is a valid email.
func reminder() outbox.Email {
	return outbox.Email{
		To: "ana@example.com", Subject: "Sua entrevista é amanhã às 10h", HTML: "<p>Olá, Ana! Até amanhã.</p>",
		Recipient: outbox.Recipient{ExternalID: "CAND-42"},
	}
}

func interview(id, eventType string) outbox.Aggregate {
	return outbox.Aggregate{Type: "interview", ID: id, EventType: eventType}
}
