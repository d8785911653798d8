package event_test

import (
	"errors"
	"slices"
	"testing"

	"email-gateway/shared/store/event"
	"email-gateway/shared/store/storetest"
)

// TestAssignPositions_AfterRestore: a reader whose cursor is of a history that a restore has lost misses no event that is
// recorded afterwards, however many there are, and reads none again. Until a dispatcher runs, its cursor is expired.
func TestAssignPositions_AfterRestore(t *testing.T) {
	t.Parallel()
	for _, recorded := range []int{0, 5, 10, 15} {
		d := storetest.New(t)
		company, s := d.Company(t), open(t, d, "test")
		record := func(n int) (recorded []string) {
			for range n {
				id := newEmail(t, d.SQL, company)
				if err := appendEvents(t.Context(), d.SQL, id, 1); err != nil {
					t.Fatal(err)
				}
				recorded = append(recorded, event.Event{EmailID: id, Seq: 1}.ID())
			}
			return recorded
		}
		record(20)
		assignAll(t, s)
		kept, _ := readAll(t, s, company, event.Cursor{}, 100)
		record(10)
		assignAll(t, s)
		_, after := readAll(t, s, company, event.Cursor{}, 100)
		if after.Position != 30 {
			t.Fatalf("the cursor is at position %d, want 30", after.Position)
		}

		restoreTo(t, d, kept)
		if _, err := s.Read(t.Context(), company, after, nil, 100); !errors.Is(err, event.ErrExpired) {
			t.Errorf("before a dispatcher runs: %v", err)
		}
		want := record(recorded)
		assignAll(t, s)
		got, last := readAll(t, s, company, after, 4)
		if !slices.Equal(ids(got), want) {
			t.Errorf("%d events, want the %d that were recorded after the restore", len(got), recorded)
		}
		assignAll(t, s)
		if newest := storetest.Ask[int64](t, d, `SELECT newest FROM event_positions`); newest != last.Position {
			t.Errorf("the next round moves the newest position from %d to %d", last.Position, newest)
		}
		if all, _ := readAll(t, s, company, event.Cursor{}, 100); len(all) != len(kept)+recorded {
			t.Errorf("%d events from the beginning, want %d", len(all), len(kept)+recorded)
		}
	}
}

// restoreTo puts the feed into the state in which it had the events, as a restored dump has it: the tables are new.
func restoreTo(t *testing.T, d storetest.Database, kept []event.Event) {
	t.Helper()
	newest := kept[len(kept)-1].Position
	d.Run(t, `DELETE FROM event_feed WHERE position > $1`, newest)
	d.Run(t, `UPDATE event_positions SET newest = $1`, newest)
	d.Run(t, `ALTER TABLE event_positions RENAME TO dumped`)
	d.Run(t, `CREATE TABLE event_positions (LIKE dumped INCLUDING ALL)`)
	d.Run(t, `INSERT INTO event_positions SELECT * FROM dumped`)
}

// TestHistory: the name of the history has the timeline, which changes when a standby is promoted.
func TestHistory(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	got := storetest.Ask[string](t, d, `SELECT email_gateway_history()`)
	want := storetest.Ask[string](t, d, `SELECT format('%s.%s.%s', 'event_positions'::regclass::oid, s.system_identifier, lpad(to_hex(c.timeline_id), 8, '0')) FROM pg_control_system() s, pg_control_checkpoint() c`)
	if got != want {
		t.Errorf("the history is %s, want %s", got, want)
	}
}
