package outbox_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"email-gateway/shared/outbox"
)

// A transaction writes at most 10,000 emails of a company, since dispatchers read its rows until
// it ends.
func TestEnqueue_TransactionLimit(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	a.enqueue(t, interview("moved", "REMINDER"), reminder())
	tx := a.begin(t)
	run := func(statement string, args ...any) {
		t.Helper()
		if _, err := tx.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	enqueue := func(id string) error {
		_, err := a.reminders.Enqueue(t.Context(), tx, interview(id, "REMINDER"), reminder())
		return err
	}
	reschedule := func(id string) error {
		_, err := a.reminders.Reschedule(t.Context(), tx, interview(id, "REMINDER"), reminder().SendAt)
		return err
	}
	cancel := func(id string) error {
		_, err := a.reminders.Cancel(t.Context(), tx, interview(id, "REMINDER"))
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const before = 9995 // written by statements that the test leaves out
	run(`INSERT INTO quota_deltas (company_id, transaction_writes) VALUES ($1, $2)`, a.company, before)
	must(enqueue("1"))
	must(enqueue("1")) // exists already, and is not counted
	must(enqueue("2"))
	must(reschedule("moved"))
	must(cancel("moved"))
	run(`SAVEPOINT rolled_back`)
	must(enqueue("3"))
	run(`ROLLBACK TO rolled_back`)
	must(enqueue("3"))
	for what, write := range map[string]error{
		"enqueue": failing(t, tx, func() error { return enqueue("4") }), "reschedule": failing(t, tx, func() error { return reschedule("2") }),
		"cancel": failing(t, tx, func() error { return cancel("2") }),
	} {
		if !errors.Is(write, outbox.ErrTransactionFull) || !strings.Contains(write.Error(), "commit") {
			t.Errorf("%s beyond the limit: %v", what, write)
		}
	}
	commit(t, tx)
	a.enqueue(t, interview("4", "REMINDER"), reminder())
}

// failing returns the error of a write, and rolls the write back.
func failing(t *testing.T, tx *sql.Tx, write func() error) error {
	t.Helper()
	if _, err := tx.ExecContext(t.Context(), `SAVEPOINT before_failure`); err != nil {
		t.Fatal(err)
	}
	failed := write()
	if _, err := tx.ExecContext(t.Context(), `ROLLBACK TO before_failure`); err != nil {
		t.Fatal(err)
	}
	return failed
}
