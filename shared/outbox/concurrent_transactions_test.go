package outbox_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/email"
	"email-gateway/shared/outbox"
	"email-gateway/shared/store/storetest"
)

// replace cancels and enqueues the email in the transaction, and returns the new one's id.
func (a *agenda) replace(t *testing.T, tx *sql.Tx, about outbox.Aggregate) uuid.UUID {
	t.Helper()
	if _, err := a.reminders.Cancel(t.Context(), tx, about); err != nil {
		t.Fatal(err)
	}
	done, err := a.reminders.Enqueue(t.Context(), tx, about, reminder())
	if err != nil || !done.Created {
		t.Fatalf("%+v, %v", done, err)
	}
	return done.ID
}

// behind runs do in a transaction of its own, which waits for tx, and commits tx.
func behind[T any](t *testing.T, a *agenda, tx *sql.Tx, do func(tx *sql.Tx) (T, error)) T {
	t.Helper()
	done := make(chan T)
	go func() { done <- inTx(t, a, do) }()
	storetest.WaitBlocked(t, a.Database, 1)
	commit(t, tx)
	return <-done
}

// A cancel that waits for a transaction which replaces the email cancels the email that replaced it, and whatever else
// that transaction has added.
func TestCancel_BehindAReplacement(t *testing.T) {
	t.Parallel()
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprintf("all=%t", all), func(t *testing.T) {
			t.Parallel()
			a := newAgenda(t)
			about, other := interview("42", "R"), interview("42", "OTHER")
			named := about
			a.enqueue(t, about, reminder())
			tx := a.begin(t)
			want := []uuid.UUID{a.replace(t, tx, about)}
			if all {
				named.EventType = ""
				added, err := a.reminders.Enqueue(t.Context(), tx, other, reminder())
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, added.ID)
			}
			done := behind(t, a, tx, func(tx *sql.Tx) ([]outbox.Cancelled, error) { return a.reminders.Cancel(t.Context(), tx, named) })
			var got []uuid.UUID
			for _, c := range done {
				if got = append(got, c.ID); !c.Cancelled || c.Status != email.Cancelled {
					t.Errorf("%+v", c)
				}
			}
			slices.SortFunc(got, func(x, y uuid.UUID) int { return slices.Index(want, x) - slices.Index(want, y) })
			if !slices.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
			if n := a.count(t, `SELECT count(*) FROM email_outbox WHERE status = 'PENDING'`); n != 0 {
				t.Errorf("%d emails wait", n)
			}
		})
	}
}

// So does a reschedule.
func TestReschedule_BehindAReplacement(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	about := interview("42", "R")
	a.enqueue(t, about, reminder())
	tx := a.begin(t)
	second := a.replace(t, tx, about)
	at := time.Now().Add(48 * time.Hour).Truncate(time.Millisecond)
	done := behind(t, a, tx, func(tx *sql.Tx) (outbox.Rescheduled, error) {
		return a.reminders.Reschedule(t.Context(), tx, about, at)
	})
	if done.ID != second || !done.Moved || !a.row(t, second).Next.Equal(at) {
		t.Errorf("%+v, due %s", done, a.row(t, second).Next)
	}
}

// An enqueue waits for a transaction that cancels or reschedules the email, whichever way that ends.
func TestEnqueue_BehindAChange(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	cancel := func(tx *sql.Tx, about outbox.Aggregate) error {
		_, err := a.reminders.Cancel(t.Context(), tx, about)
		return err
	}
	for _, c := range []struct {
		name    string
		change  func(tx *sql.Tx, about outbox.Aggregate) error
		created bool
	}{
		{"cancelled", cancel, true},
		{"cancel-rolled-back", func(tx *sql.Tx, about outbox.Aggregate) error {
			_, err := tx.ExecContext(t.Context(), `SAVEPOINT p`)
			return errors.Join(err, cancel(tx, about))
		}, false},
		{"rescheduled", func(tx *sql.Tx, about outbox.Aggregate) error {
			_, err := a.reminders.Reschedule(t.Context(), tx, about, time.Now().Add(time.Hour))
			return err
		}, false},
	} {
		about := interview(c.name, "R")
		first := a.enqueue(t, about, reminder()).ID
		tx := a.begin(t)
		if err := c.change(tx, about); err != nil {
			t.Fatal(err)
		}
		done := make(chan outbox.Enqueued)
		go func() { done <- a.enqueue(t, about, reminder()) }()
		storetest.WaitBlocked(t, a.Database, 1)
		if c.name == "cancel-rolled-back" {
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
		} else {
			commit(t, tx)
		}
		if got := <-done; got.Created != c.created || got.Status != email.Pending || (got.ID == first) == c.created {
			t.Errorf("%s: %+v, the first was %s", c.name, got, first)
		}
	}
}

// Transactions that repeat an enqueue do not wait for each other, nor does a change of the email by one of them.
func TestEnqueue_AgainLocksNothing(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	about := interview("42", "R")
	first := a.enqueue(t, about, reminder()).ID
	a.reschedule(t, about, time.Now().Add(time.Hour)) // from now on a repetition locks the row for a moment
	var repeated []*sql.Tx
	for range 3 {
		tx := a.begin(t)
		if _, err := tx.ExecContext(t.Context(), `SET LOCAL lock_timeout = '1s'`); err != nil {
			t.Fatal(err)
		}
		if got, err := a.reminders.Enqueue(t.Context(), tx, about, reminder()); err != nil || got.Created || got.ID != first {
			t.Fatalf("%+v, %v", got, err)
		}
		repeated = append(repeated, tx)
	}
	for _, tx := range repeated {
		if got, err := a.reminders.Reschedule(t.Context(), tx, about, time.Now().Add(2*time.Hour)); err != nil || !got.Moved {
			t.Fatalf("%+v, %v", got, err)
		}
		commit(t, tx)
	}
}

// The programs of a suspended company may only cancel, so that its resume sends nothing that was accepted meanwhile.
func TestEnqueue_Suspended(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	about := interview("42", "R")
	a.enqueue(t, about, reminder())
	if err := a.Store.SuspendCompany(t.Context(), storetest.Operator(), a.company); err != nil {
		t.Fatal(err)
	}
	tx := a.begin(t)
	enqueue := func() error {
		_, err := a.reminders.Enqueue(t.Context(), tx, interview("43", "R"), reminder())
		return err
	}
	reschedule := func() error {
		_, err := a.reminders.Reschedule(t.Context(), tx, about, time.Now().Add(time.Hour))
		return err
	}
	for what, write := range map[string]func() error{"enqueue": enqueue, "reschedule": reschedule} {
		if err := failing(t, tx, write); !errors.Is(err, outbox.ErrCompanySuspended) {
			t.Errorf("%s: %v", what, err)
		}
	}
	commit(t, tx)
	if n := a.count(t, `SELECT count(*) FROM email_outbox`); n != 1 {
		t.Errorf("%d emails", n)
	}
	if got := a.cancel(t, about); len(got) != 1 || !got[0].Cancelled {
		t.Errorf("%+v", got)
	}
	if err := a.Store.ResumeCompany(t.Context(), storetest.Operator(), a.company); err != nil {
		t.Fatal(err)
	}
	if got := a.enqueue(t, about, reminder()); !got.Created {
		t.Errorf("%+v", got)
	}
}

// A program's transaction locks as many tables and indexes with twenty partitions as with one month's: each lock
// takes a place in a table that all tenants share (max_locks_per_transaction).
func TestTransaction_LocksOnePartition(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	for back := 1; back <= 20; back++ {
		storetest.PastPartition(t, a.Database, "email_logs", back)
		storetest.PastPartition(t, a.Database, "email_events", back)
	}
	held := map[string]int{}
	for name, change := range map[string]func(tx *sql.Tx, about outbox.Aggregate) error{
		"enqueue": func(tx *sql.Tx, about outbox.Aggregate) error {
			_, err := a.reminders.Enqueue(t.Context(), tx, about, reminder())
			return err
		},
		"reschedule": func(tx *sql.Tx, about outbox.Aggregate) error {
			_, err := a.reminders.Reschedule(t.Context(), tx, about, time.Now().Add(time.Hour))
			return err
		},
		"cancel": func(tx *sql.Tx, about outbox.Aggregate) error {
			_, err := a.reminders.Cancel(t.Context(), tx, about)
			return err
		},
		"enqueue again": func(tx *sql.Tx, about outbox.Aggregate) error {
			if _, err := tx.ExecContext(t.Context(), `DELETE FROM email_outbox`); err != nil { // only the log is left
				return err
			}
			got, err := a.reminders.Enqueue(t.Context(), tx, about, reminder())
			if got.Created {
				t.Errorf("%+v", got)
			}
			return err
		},
	} {
		about := interview(uuid.NewString(), "R")
		if name != "enqueue" {
			a.enqueue(t, about, reminder())
			a.reschedule(t, about, time.Now().Add(2*time.Hour))
		}
		tx := a.begin(t)
		if err := change(tx, about); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var n int
		if err := tx.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation IN (
			SELECT oid FROM pg_class WHERE relname ~ '^email_(logs|events)')`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		held[name] = n
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	for name, n := range held {
		if n >= 40 {
			t.Errorf("%s holds %d locks of the logs", name, n)
		}
	}
}

// In REPEATABLE READ an enqueue that has waited for the email's cancellation cannot see it: Postgres ends the transaction, as
// after each other wait.
func TestEnqueue_BehindACancelInRepeatableRead(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	about := interview("42", "R")
	a.enqueue(t, about, reminder())
	other := a.begin(t)
	if _, err := a.reminders.Cancel(t.Context(), other, about); err != nil {
		t.Fatal(err)
	}
	tx, err := a.SQL.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	ended := make(chan error)
	go func() {
		done, err := a.reminders.Enqueue(t.Context(), tx, about, reminder())
		if err == nil {
			err = fmt.Errorf("created %t, %s", done.Created, done.Status)
		}
		ended <- err
	}()
	storetest.WaitBlocked(t, a.Database, 1)
	commit(t, other)
	var refused *pq.Error
	if err := <-ended; !errors.As(err, &refused) || refused.Code != "40001" {
		t.Errorf("%v, want SQLSTATE 40001", err)
	}
}
