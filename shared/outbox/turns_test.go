package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
	"email-gateway/shared/outbox"
	outboxstore "email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// A cancelled email whose key another one has taken is not sent again: there would be two of them,
// and a cancel would find only the newer one.
func TestReplay_OfAnEmailWithASuccessor(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	about := interview("42", "REMINDER_24H")
	replay := func(id uuid.UUID) outboxstore.Advanced {
		t.Helper()
		done, err := a.Store.Advance(t.Context(), outboxstore.Transition{
			ID: id, Guard: outboxstore.GuardReplay, Token: uuid.New(), Status: email.Pending, Renew: time.Hour, Events: events(email.EventReplayed),
		})
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	first := a.enqueue(t, about, reminder()).ID
	a.cancel(t, about)
	second := a.enqueue(t, about, reminder()).ID
	if done := replay(first); done.Applied || !done.Replaced || done.Status != email.Cancelled {
		t.Errorf("the first one: %+v", done)
	}
	if n := a.count(t, `SELECT count(*) FROM email_outbox WHERE status = 'PENDING'`); n != 1 {
		t.Errorf("%d emails wait, want one", n)
	}
	a.cancel(t, about)
	if done := replay(second); !done.Applied || done.Replaced {
		t.Errorf("the newest one: %+v", done)
	}
}

// A retry of a cancelled email and the acceptance of its successor wait for each other: only the one that commits first
// is sent.
func TestReplay_WhileASuccessorIsAccepted(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	about := interview("42", "REMINDER_24H")
	first := a.enqueue(t, about, reminder()).ID
	a.cancel(t, about)
	tx := a.begin(t)
	second, err := a.reminders.Enqueue(t.Context(), tx, about, reminder())
	if err != nil || !second.Created {
		t.Fatalf("%+v, %v", second, err)
	}
	replayed := make(chan outboxstore.Advanced)
	go func() {
		done, err := a.Store.Advance(t.Context(), storetest.ReplayOf(first))
		if err != nil {
			t.Error(err)
		}
		replayed <- done
	}()
	storetest.WaitBlocked(t, a.Database, 1)
	commit(t, tx)
	if done := <-replayed; done.Applied || !done.Replaced {
		t.Errorf("the retry behind its successor: %+v", done)
	}

	a.cancel(t, about)
	retried, release, ended := make(chan outboxstore.Advanced), make(chan struct{}), make(chan error)
	go func() {
		ended <- a.Store.DB().InTx(t.Context(), func(tx *sqlx.Tx) error {
			done, err := outboxstore.AdvanceIn(t.Context(), tx, storetest.ReplayOf(second.ID))
			retried <- done
			<-release
			return err
		})
	}()
	if done := <-retried; !done.Applied {
		t.Errorf("the retry before its successor: %+v", done)
	}
	accepted := make(chan outbox.Enqueued)
	go func() { accepted <- a.enqueue(t, about, reminder()) }()
	storetest.WaitBlocked(t, a.Database, 1)
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if third := <-accepted; third.Created || third.ID != second.ID {
		t.Errorf("the successor behind the retry: %+v", third)
	}
}

// A write whose answer was lost is repeated. By then the email may have been cancelled.
func TestTakeKey_Again(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	about := interview("42", "REMINDER_24H")
	id := a.enqueue(t, about, reminder()).ID
	a.cancel(t, about)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var holder uuid.UUID
	err := a.SQL.QueryRowContext(ctx, `SELECT email_gateway_take_key($1, $2, $3, $4, $5)`, a.company, about.Type, about.ID, about.EventType, id).Scan(&holder)
	if err != nil || holder != id {
		t.Errorf("%s, %v, want %s", holder, err, id)
	}
}
