package event_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/event"
	"email-gateway/shared/store/storetest"
)

// TestAssignPositions_OpenTransaction: a transaction that has written events and stays open delays no
// other event. Its own events get the next positions after its commit.
func TestAssignPositions_OpenTransaction(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, s := d.Company(t), open(t, d, "test")
	late, early := newEmail(t, d.SQL, company), newEmail(t, d.SQL, company)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
		t.Fatal(err)
	}
	if err := appendEvents(t.Context(), tx, late, 2); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := appendEvents(t.Context(), d.SQL, early, 1); err != nil {
			t.Fatal(err)
		}
		assignAll(t, s)
	}
	before, after := readAll(t, s, company, event.Cursor{}, 100)
	if len(before) != 3 || before[0].EmailID != early {
		t.Fatalf("beside the open transaction: %v", ids(before))
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	assignAll(t, s)
	behind, _ := readAll(t, s, company, after, 100)
	if len(behind) != 2 || behind[0].EmailID != late || behind[0].Position <= before[2].Position {
		t.Errorf("behind the cursor after the commit: %v", ids(behind))
	}
}

// TestAssignPositions_ReadsNoOldRows: a round reads only rows of transactions that the last completed
// one may have missed, also while a snapshot keeps the entries of all rows in the index.
func TestAssignPositions_ReadsNoOldRows(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, s := d.Company(t), open(t, d, "test")
	id := newEmail(t, d.SQL, company)
	snapshot, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snapshot.Rollback() }()
	if _, err := snapshot.ExecContext(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM event_feed`); err != nil {
		t.Fatal(err)
	}
	if _, err := d.SQL.ExecContext(t.Context(), `
		INSERT INTO event_feed (company_id, email_ids, first_seqs, last_seqs) SELECT $1, ARRAY[$2::uuid], '{1}', '{1}' FROM generate_series(1, 20001)`, company, id); err != nil {
		t.Fatal(err)
	}
	if _, err := d.SQL.ExecContext(t.Context(), `ANALYZE event_feed`); err != nil { // while all rows wait
		t.Fatal(err)
	}
	// Other databases of the server have transactions of their own, which may be older than these rows for a while.
	deadline := time.Now().Add(3 * time.Minute)
	for {
		if err := appendEvents(t.Context(), d.SQL, id, 1); err != nil {
			t.Fatal(err)
		}
		assignAll(t, s)
		plan, read := storetest.Buffers(t, d.SQL, event.WaitingSQL)
		if read <= 100 { // of 664
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a round without new events reads %d buffers:\n%s", read, plan)
		}
	}
}

func TestRead_TypesAndLimits(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, s := d.Company(t), open(t, d, "test")
	for range 20 {
		if err := appendEvents(t.Context(), d.SQL, newEmail(t, d.SQL, company), 4); err != nil {
			t.Fatal(err)
		}
	}
	assignAll(t, s)
	all, end := readAll(t, s, company, event.Cursor{}, 100)
	if len(all) != 80 {
		t.Fatalf("%d events, want 80", len(all))
	}
	for limit := 1; limit <= 9; limit++ {
		some, _ := readAll(t, s, company, event.Cursor{}, limit)
		if diff := cmp.Diff(ids(all), ids(some)); diff != "" {
			t.Errorf("in pages of %d (-in one +in pages):\n%s", limit, diff)
		}
	}
	want := slices.DeleteFunc(slices.Clone(all), func(e event.Event) bool { return e.Type != email.EventSentAttempt && e.Type != email.EventReleased })
	some, next := readAll(t, s, company, event.Cursor{}, 3, email.EventSentAttempt, email.EventReleased)
	if diff := cmp.Diff(ids(want), ids(some)); diff != "" {
		t.Errorf("of two types:\n%s", diff)
	}
	if next != end {
		t.Errorf("the cursor at the end is %v with types and %v without", next, end)
	}
	for i, e := range all {
		cursor, err := event.ParseCursor(e.Cursor().String())
		if err != nil {
			t.Fatal(err)
		}
		if stored := event.At(cursor.Place()); stored != cursor {
			t.Fatalf("%v is stored as %v", cursor, stored)
		}
		rest, _ := readAll(t, s, company, cursor, 100)
		if diff := cmp.Diff(ids(all[i+1:]), ids(rest)); diff != "" {
			t.Fatalf("behind event %d:\n%s", i, diff)
		}
	}
	found, err := s.Find(t.Context(), company, []string{all[7].ID(), uuid.NewString() + ".1", all[3].ID()})
	if err != nil || !slices.Equal(ids(found), []string{all[7].ID(), all[3].ID()}) {
		t.Errorf("found by id: %v, %v", ids(found), err)
	}
	if found, err := s.Find(t.Context(), d.Company(t), []string{all[7].ID()}); err != nil || len(found) != 0 {
		t.Errorf("another company finds %v, %v", ids(found), err)
	}
	if _, err := s.Find(t.Context(), company, []string{"7"}); err == nil {
		t.Error("the text 7 is accepted as the id of an event")
	}
	if others, _ := readAll(t, s, d.Company(t), event.Cursor{}, 100); len(others) != 0 {
		t.Errorf("another company reads %v", ids(others))
	}
}

// An empty list of types selects no event and moves the cursor; nil selects all.
func TestRead_NoTypes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, s := d.Company(t), open(t, d, "test")
	if err := appendEvents(t.Context(), d.SQL, newEmail(t, d.SQL, company), 2); err != nil {
		t.Fatal(err)
	}
	assignAll(t, s)
	page, err := s.Read(t.Context(), company, event.Cursor{}, event.NewFilter(), 100)
	if err != nil || len(page.Events) != 0 || page.Next != page.Newest {
		t.Errorf("no types: %+v, %v", page, err)
	}
	if page, err = s.Read(t.Context(), company, event.Cursor{}, nil, 100); err != nil || len(page.Events) == 0 {
		t.Errorf("all types: %+v, %v", page, err)
	}
}

// TestPurge: what is older than the age is deleted, cursors before it are expired, and one that is
// newer than the database too.
func TestPurge(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, s := d.Company(t), open(t, d, "test")
	id := newEmail(t, d.SQL, company)
	for range 10 {
		if err := appendEvents(t.Context(), d.SQL, id, 1); err != nil {
			t.Fatal(err)
		}
	}
	assignAll(t, s)
	all, end := readAll(t, s, company, event.Cursor{}, 100)
	if _, err := d.SQL.ExecContext(t.Context(), `UPDATE event_feed SET created_at = now() - interval '31 days' WHERE position <= $1`, all[3].Position); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{3, 1, 0} {
		if n, err := s.Purge(t.Context(), 30*24*time.Hour, 3); err != nil || n != want {
			t.Fatalf("purged %d, %v, want %d", n, err, want)
		}
	}
	page, err := s.Read(t.Context(), company, all[2].Cursor(), nil, 100)
	if !errors.Is(err, event.ErrExpired) {
		t.Errorf("a cursor before deleted events: %v, want ErrExpired", err)
	}
	for name, cursor := range map[string]event.Cursor{"the oldest": page.Oldest, "none": {}, "the last deleted event": all[3].Cursor()} {
		if rest, _ := readAll(t, s, company, cursor, 100); !slices.Equal(ids(rest), ids(all[4:])) {
			t.Errorf("behind %s: %v", name, ids(rest))
		}
	}
	if rest, _ := readAll(t, s, company, end, 100); len(rest) != 0 {
		t.Errorf("behind the end: %v", ids(rest))
	}
	if _, err := s.Read(t.Context(), company, event.Behind(end.Position+1), nil, 100); !errors.Is(err, event.ErrExpired) {
		t.Errorf("a cursor newer than the database: %v, want ErrExpired", err)
	}
}

func TestParseCursor(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "x", "ZQ", "ZS0x", "ZTEuMg", "ZTEuMi4z.", "ZTk5OTk5OTk5OTk5OTk5OTk5OTk5"} {
		if c, err := event.ParseCursor(text); err == nil {
			t.Errorf("%q is read as %v", text, c)
		}
	}
	for _, c := range []event.Cursor{{}, event.Behind(0), event.Behind(7), {Position: 1}} {
		got, err := event.ParseCursor(c.String())
		if err != nil {
			t.Errorf("%v: %v", c, err)
		}
		if got.String() != c.String() {
			t.Errorf("%v is read as %v", c, got)
		}
	}
}
