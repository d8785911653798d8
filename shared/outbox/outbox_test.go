package outbox_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/outbox"
	outboxstore "email-gateway/shared/store/outbox"
)

// The interview and its reminders are all committed or none is.
func TestEnqueue_CommittedWithItsTransaction(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	at := time.Now().Add(72 * time.Hour).Truncate(time.Second)
	book := func(id string, end func() error, do func(ids []uuid.UUID)) {
		t.Helper()
		tx := a.begin(t)
		if _, err := tx.ExecContext(t.Context(), `INSERT INTO interviews (id, at) VALUES ($1, $2)`, id, at); err != nil {
			t.Fatal(err)
		}
		var ids []uuid.UUID
		for event, before := range map[string]time.Duration{"REMINDER_24H": 24 * time.Hour, "REMINDER_1H": time.Hour} {
			e := reminder()
			e.SendAt = at.Add(-before)
			done, err := a.reminders.Enqueue(t.Context(), tx, interview(id, event), e)
			if err != nil || !done.Created || done.Status != email.Pending {
				t.Fatalf("%+v, %v", done, err)
			}
			ids = append(ids, done.ID)
		}
		if end != nil {
			if err := end(); err != nil {
				t.Fatal(err)
			}
			_ = tx.Rollback()
		} else {
			commit(t, tx)
		}
		do(ids)
	}
	const all = `SELECT (SELECT count(*) FROM interviews) + (SELECT count(*) FROM email_outbox) + (SELECT count(*) FROM outbox_aggregates)`
	book("41", func() error { return nil }, func([]uuid.UUID) {
		if n := a.count(t, all); n != 0 {
			t.Errorf("%d rows are left of a transaction that was rolled back", n)
		}
	})
	book("42", nil, func(ids []uuid.UUID) {
		if n := a.count(t, all); n != 5 {
			t.Errorf("%d rows, want the interview, two reminders and their keys", n)
		}
		for _, id := range ids {
			r := a.row(t, id)
			if before := at.Sub(r.Next); r.Status != "PENDING" || before != 24*time.Hour && before != time.Hour || r.Expires.Sub(r.Next) != 24*time.Hour {
				t.Errorf("%+v", r)
			}
			if id.Version() != 7 || time.Since(time.Unix(id.Time().UnixTime())) > time.Minute {
				t.Errorf("%s is no UUIDv7 of now", id)
			}
		}
	})
	book("41", nil, func([]uuid.UUID) {}) // a rollback has taken no key
}

// A program that crashes before its commit has written nothing and blocks nothing.
func TestEnqueue_ProgramCrash(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	about := interview("42", "REMINDER_24H")
	tx := a.begin(t)
	if _, err := a.reminders.Enqueue(t.Context(), tx, about, reminder()); err != nil {
		t.Fatal(err)
	}
	var pid int
	if err := tx.QueryRowContext(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	a.exec(t, `SELECT pg_terminate_backend($1)`, pid)
	if err := tx.Commit(); err == nil {
		t.Error("the commit succeeded over a closed connection")
	}
	if done := a.enqueue(t, about, reminder()); !done.Created || a.count(t, `SELECT count(*) FROM email_outbox`) != 1 {
		t.Errorf("%+v", done)
	}
}

// Repeated enqueues, from wherever, make one email, until it is cancelled.
func TestEnqueue_Once(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	about := interview("42", "REMINDER_24H")
	var mu sync.Mutex
	var created int
	ids := map[uuid.UUID]bool{}
	var group sync.WaitGroup
	for range 8 {
		tx := a.begin(t)
		group.Go(func() {
			done, err := a.reminders.Enqueue(t.Context(), tx, about, reminder())
			if err = errors.Join(err, tx.Commit()); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[done.ID] = true
			if done.Created {
				created++
			}
		})
	}
	group.Wait()
	if len(ids) != 1 || created != 1 || a.count(t, `SELECT count(*) FROM email_outbox`) != 1 {
		t.Fatalf("%d ids, %d created", len(ids), created)
	}
	tx := a.begin(t)
	first, err := a.reminders.Cancel(t.Context(), tx, about)
	if err != nil || len(first) != 1 || !first[0].Cancelled {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := a.reminders.Enqueue(t.Context(), tx, about, reminder()) // in the same transaction
	if err != nil || !again.Created || again.ID == first[0].ID {
		t.Fatalf("%+v, %v", again, err)
	}
	commit(t, tx)
	if done := a.enqueue(t, about, reminder()); done.Created || done.ID != again.ID {
		t.Errorf("%+v, want %s", done, again.ID)
	}
}

// A waiting email is moved, and the dispatcher acts on it then; a claimed or final one is
// unchanged.
func TestReschedule(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	for name, tt := range map[string]struct {
		assignments string
		moved       bool
	}{
		"PENDING":         {"status = 'PENDING'", true},
		"ENQUEUED":        {"status = 'ENQUEUED', enqueued_at = now()", true},
		"RETRY_SCHEDULED": {"status = 'RETRY_SCHEDULED', attempts = 1", true},
		"PROCESSING":      {"status = 'PROCESSING', claim_token = gen_random_uuid(), lease_until = now() + interval '1 minute'", false},
		"SENT":            {"status = 'SENT', processed_at = now()", false},
		"FAILED":          {"status = 'FAILED', processed_at = now()", false},
		"CANCELLED":       {"status = 'CANCELLED', processed_at = now()", false},
	} {
		about := interview(name, "REMINDER")
		id := a.enqueue(t, about, reminder()).ID
		a.exec(t, `UPDATE email_outbox SET `+tt.assignments+` WHERE id = $1`, id)
		was := a.row(t, id)
		want := outbox.Rescheduled{ID: id, Moved: tt.moved, Status: email.Status(was.Status)}
		if tt.moved {
			want.Status = email.Pending
		}
		if got := a.reschedule(t, about, at); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		now := a.row(t, id)
		switch {
		case tt.moved && (now.Status != "PENDING" || !now.Next.Equal(at) || !now.Expires.Equal(at.Add(24*time.Hour))):
			t.Errorf("%s: %+v", name, now)
		case !tt.moved && !cmp.Equal(now, was):
			t.Errorf("%s: %+v of %+v", name, now, was)
		}
	}
	about := interview("PENDING", "REMINDER")
	if got := a.reschedule(t, about, time.Time{}); !got.Moved || time.Until(a.row(t, got.ID).Next) > 0 {
		t.Errorf("the email was not moved to now: %+v", got)
	}
	tx := a.begin(t)
	got, err := a.reminders.Reschedule(t.Context(), tx, about, at)
	if err = errors.Join(err, tx.Rollback()); err != nil || !got.Moved || a.row(t, got.ID).Next.Equal(at) {
		t.Errorf("a move that was rolled back has an effect: %+v, %v", got, err)
	}
	for _, unknown := range []outbox.Aggregate{interview("PENDING", "OTHER"), interview("0", "REMINDER"), {Type: "task", ID: "PENDING", EventType: "REMINDER"}} {
		if _, err := a.reminders.Reschedule(t.Context(), a.begin(t), unknown, at); !errors.Is(err, outbox.ErrNotFound) {
			t.Errorf("%+v: %v", unknown, err)
		}
	}
	if _, err := a.reminders.Reschedule(t.Context(), a.begin(t), about, time.Now().AddDate(2, 0, 0)); !faulty(err, "sendAt") {
		t.Errorf("in two years: %v", err)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	day, hour := a.enqueue(t, interview("42", "REMINDER_24H"), reminder()).ID, a.enqueue(t, interview("42", "REMINDER_1H"), reminder()).ID
	inWork, other := a.enqueue(t, interview("42", "INVITATION"), reminder()).ID, a.enqueue(t, interview("43", "REMINDER_24H"), reminder()).ID
	a.exec(t, `UPDATE email_outbox SET status = 'PROCESSING', claim_token = gen_random_uuid(), lease_until = now() + interval '1 minute' WHERE id = $1`, inWork)

	tx := a.begin(t)
	if _, err := a.reminders.Cancel(t.Context(), tx, outbox.Aggregate{Type: "interview", ID: "42"}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if r := a.row(t, day); r.Status != "PENDING" {
		t.Errorf("a cancel that was rolled back has an effect: %+v", r)
	}
	one := []outbox.Cancelled{{ID: day, EventType: "REMINDER_24H", Cancelled: true, Status: email.Cancelled}}
	all := []outbox.Cancelled{
		one[0],
		{ID: hour, EventType: "REMINDER_1H", Cancelled: true, Status: email.Cancelled},
		{ID: inWork, EventType: "INVITATION", Status: email.Processing},
	}
	if diff := cmp.Diff(one, a.cancel(t, interview("42", "REMINDER_24H"))); diff != "" {
		t.Errorf("one event type (-want +got)\n%s", diff)
	}
	if r := a.row(t, hour); r.Status != "PENDING" {
		t.Errorf("the other event type's is %+v", r)
	}
	for range 2 { // cancelling twice has no further effect
		got := a.cancel(t, outbox.Aggregate{Type: "interview", ID: "42"})
		slices.SortFunc(got, func(x, y outbox.Cancelled) int { return slices.Compare(x.ID[:], y.ID[:]) })
		if diff := cmp.Diff(all, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
	if r := a.row(t, other); r.Status != "PENDING" {
		t.Errorf("the other interview's is %+v", r)
	}
	timeline, err := a.Store.Timeline(t.Context(), day)
	if err != nil || len(timeline) != 1 || timeline[0].Type != email.EventCancelled {
		t.Errorf("timeline %+v, %v", timeline, err)
	}
	if none := a.cancel(t, outbox.Aggregate{Type: "interview", ID: "44"}); len(none) != 0 {
		t.Errorf("cancelling an aggregate without emails: %+v", none)
	}
	if _, err := a.reminders.Cancel(t.Context(), a.begin(t), outbox.Aggregate{Type: "a/b"}); !faulty(err, "aggregate.type", "aggregate.id") {
		t.Errorf("cancelling an aggregate with invalid names: %v", err)
	}
}

// An email with another end than a cancel keeps its key, also when only the log is left; when
// everything is purged, the key is free.
func TestEnqueue_AfterTheEnd(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	about := interview("42", "REMINDER_24H")
	first := a.enqueue(t, about, reminder())
	token := uuid.New()
	for _, step := range []outboxstore.Transition{
		{ID: first.ID, Guard: outboxstore.GuardClaim, Token: token, Status: email.Processing, AddAttempts: 1, Events: events(email.EventReceived, email.EventValidated, email.EventSentAttempt)},
		{ID: first.ID, Guard: outboxstore.GuardAttempt, Token: token, Status: email.Sent, Events: events(email.EventSent)},
	} {
		if done, err := a.Store.Advance(t.Context(), step); err != nil || !done.Applied {
			t.Fatalf("%+v, %v", done, err)
		}
	}
	want := outbox.Enqueued{ID: first.ID, Status: email.Sent}
	if got := a.enqueue(t, about, reminder()); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	a.exec(t, `DELETE FROM email_outbox WHERE id = $1`, first.ID)
	if got := a.enqueue(t, about, reminder()); got != want {
		t.Errorf("its log alone: %+v, want %+v", got, want)
	}
	if got := a.reschedule(t, about, time.Time{}); got.Moved || got.Status != email.Sent {
		t.Errorf("%+v", got)
	}
	a.exec(t, `DELETE FROM email_events WHERE email_log_id = $1`, first.ID)
	a.exec(t, `DELETE FROM email_logs WHERE outbox_id = $1`, first.ID)
	if got := a.enqueue(t, about, reminder()); !got.Created || got.ID == first.ID {
		t.Errorf("after the first email was purged: %+v", got)
	}
}

func events(kinds ...email.EventType) []email.Event {
	all := make([]email.Event, len(kinds))
	for i, kind := range kinds {
		all[i] = email.Event{Type: kind, At: time.Now()}
	}
	return all
}

func TestNew(t *testing.T) {
	t.Parallel()
	for _, p := range []outbox.Params{
		{}, {CompanyID: uuid.New(), EmailTTL: time.Second}, {CompanyID: uuid.New(), EmailTTL: 721 * time.Hour},
	} {
		if _, err := outbox.New(p); err == nil {
			t.Errorf("New accepts %+v", p)
		}
	}
}
