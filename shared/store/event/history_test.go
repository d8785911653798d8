package event_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/store/event"
	"email-gateway/shared/store/storetest"
)

// TestAssignPositions_AfterRestore: a reader whose cursor is of a history that a restore has lost misses no event that is
// recorded afterwards, however many there are, and reads none again. Until a dispatcher runs, it has to wait.
func TestAssignPositions_AfterRestore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		recorded int
		unnamed  bool // the server does not show the restore, and the operator states it
	}{{0, false}, {5, false}, {10, false}, {15, false}, {15, true}} {
		recorded, d := c.recorded, storetest.New(t)
		company, s := d.Company(t), open(t, d, "test")
		record := func(n int) (recorded []uuid.UUID) {
			for range n {
				recorded = append(recorded, newEmail(t, d.SQL, company))
				if err := appendEvents(t.Context(), d.SQL, recorded[len(recorded)-1], 1); err != nil {
					t.Fatal(err)
				}
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

		if c.unnamed {
			rewind(t, d, kept)
			d.Run(t, `UPDATE event_positions SET history = NULL`)
		} else {
			restoreTo(t, d, kept)
		}
		if _, err := s.Read(t.Context(), company, after, nil, 100); !errors.Is(err, event.ErrNewHistory) {
			t.Errorf("before a dispatcher runs: %v", err)
		}
		want := record(recorded)
		assignAll(t, s)
		got, last := readAll(t, s, company, after, 4)
		if !slices.EqualFunc(got, want, func(e event.Event, id uuid.UUID) bool { return e.EmailID == id }) {
			t.Errorf("%d events, want the %d that were recorded after the restore", len(got), recorded)
		}
		assignAll(t, s)
		if _, err := s.Read(t.Context(), company, event.Behind(last.Position+1), nil, 100); !errors.Is(err, event.ErrExpired) {
			t.Errorf("a cursor that was never returned: %v", err)
		}
		if newest := storetest.Ask[int64](t, d, `SELECT newest FROM event_positions`); newest != last.Position {
			t.Errorf("the next round moves the newest position from %d to %d", last.Position, newest)
		}
		if all, _ := readAll(t, s, company, event.Cursor{}, 100); len(all) != len(kept)+recorded {
			t.Errorf("%d events from the beginning, want %d", len(all), len(kept)+recorded)
		}
	}
}

// TestIDs_AfterRestore: an event of a restored email has another id than an event that was read before the restore and lost, also
// if the same backup is restored again, and is found by its id. Ids of events that were not lost stay the same.
func TestIDs_AfterRestore(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, s := d.Company(t), open(t, d, "test")
	id := newEmail(t, d.SQL, company)
	record := func() {
		if err := appendEvents(t.Context(), d.SQL, id, 1); err != nil {
			t.Fatal(err)
		}
		assignAll(t, s)
	}
	record()
	kept, _ := readAll(t, s, company, event.Cursor{}, 100)
	if got, want := ids(kept), []string{id.String() + ".1"}; !slices.Equal(got, want) {
		t.Fatalf("ids %v, want %v", got, want)
	}
	seen, after := map[string]bool{}, event.Cursor{}
	for restores := range 3 {
		record()
		all, last := readAll(t, s, company, event.Cursor{}, 100)
		if got := ids(all); len(got) != 2 || got[0] != kept[0].ID() || seen[got[1]] {
			t.Fatalf("after %d restores: ids %v, seen before: %v", restores, got, seen)
		}
		if missed, _ := readAll(t, s, company, after, 100); restores > 0 && (len(missed) != 1 || missed[0].ID() != all[1].ID()) {
			t.Errorf("after %d restores, behind the cursor of the lost event: %v", restores, ids(missed))
		}
		seen[all[1].ID()], after = true, last
		if found, err := s.Find(t.Context(), company, ids(all)); err != nil || !slices.Equal(ids(found), ids(all)) {
			t.Errorf("found by id: %v, %v, want %v", ids(found), err, ids(all))
		}
		d.Run(t, `DELETE FROM email_events WHERE email_log_id = $1 AND seq > 1`, id)
		d.Run(t, `UPDATE email_logs SET event_seq = 1, last_event = 'RECEIVED' WHERE outbox_id = $1`, id)
		d.Run(t, `DROP TABLE IF EXISTS dumped`)
		restoreTo(t, d, kept)
		storetest.WaitFor(t, d, `SELECT now() >= $1::timestamptz + interval '1 s'`, all[1].CreatedAt) // two restores are never closer
	}
}

// restoreTo puts the feed into the state in which it had the events, as a restored dump has it: the tables are new.
func restoreTo(t *testing.T, d storetest.Database, kept []event.Event) {
	t.Helper()
	rewind(t, d, kept)
	d.Run(t, `ALTER TABLE event_positions RENAME TO dumped`)
	d.Run(t, `CREATE TABLE event_positions (LIKE dumped INCLUDING ALL)`)
	d.Run(t, `INSERT INTO event_positions SELECT * FROM dumped`)
}

// rewind puts the feed into the state in which it had the events, as a restored server has it.
func rewind(t *testing.T, d storetest.Database, kept []event.Event) {
	t.Helper()
	newest := kept[len(kept)-1].Position
	d.Run(t, `DELETE FROM event_feed WHERE position > $1`, newest)
	d.Run(t, `UPDATE event_positions SET newest = $1`, newest)
}

// TestHistory_Refused: where a provider refuses a function, the name has the other parts.
func TestHistory_Refused(t *testing.T) {
	t.Parallel()
	for refused, want := range map[string]string{
		"pg_walfile_name(pg_lsn)": `SELECT format('%s.%s', 'event_positions'::regclass::oid, system_identifier) FROM pg_control_system()`,
		"pg_control_system()":     `SELECT format('%s.%s', 'event_positions'::regclass::oid, left(pg_walfile_name(pg_current_wal_lsn()), 8))`,
	} {
		d := storetest.New(t)
		d.Run(t, `REVOKE EXECUTE ON FUNCTION pg_catalog.`+refused+` FROM PUBLIC`)
		d.Run(t, `GRANT EXECUTE ON FUNCTION email_gateway_history() TO PUBLIC`)
		tx, err := d.SQL.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		var got string
		if _, err := tx.ExecContext(t.Context(), `SET LOCAL ROLE pg_read_all_data`); err != nil {
			t.Fatal(err)
		}
		if err := tx.QueryRowContext(t.Context(), `SELECT email_gateway_history()`).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if want := storetest.Ask[string](t, d, want); got != want {
			t.Errorf("without %s the history is %s, want %s", refused, got, want)
		}
	}
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
