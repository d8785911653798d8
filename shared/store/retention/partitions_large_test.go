package retention_test

import (
	"strings"
	"testing"
	"time"

	"email-gateway/shared/store"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/storetest"
)

// fillDefault makes the default partition of the events larger than a partition's creation may read under its lock.
func fillDefault(t *testing.T, d storetest.Database) {
	t.Helper()
	d.Run(t, `ALTER TABLE email_events_default SET (fillfactor = 10)`) // one row a page
	d.Run(t, `INSERT INTO email_events_default (email_log_id, seq, type, metadata, created_at)
		SELECT ('01000000' || substr(gen_random_uuid()::text, 9))::uuid, 1, 'RECEIVED', jsonb_build_object('text', repeat('x', 1000)), now() FROM generate_series(1, 8300)`)
	if size := storetest.Ask[int](t, d, `SELECT pg_relation_size('email_events_default')`); size <= 64<<20 {
		t.Fatalf("%d bytes", size)
	}
}

// constraints are those that prove something about the default partition.
func constraints(t *testing.T, d storetest.Database) int {
	t.Helper()
	return storetest.Ask[int](t, d, `SELECT count(*) FROM pg_constraint WHERE conrelid = 'email_events_default'::regclass AND conname LIKE '%without%'`)
}

// A large default partition, as with events of emails that were scheduled far ahead, does not prevent partitions of
// coming months. A month that has begun gets none.
func TestMakeLogPartition_LargeDefault(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	fillDefault(t, d)
	d.Run(t, `DROP TABLE email_events_`+storetest.MonthsFromNow(0).Format("2006_01"))
	store := retention.New(d.Store.DB())
	for ahead := 2; ahead <= 3; ahead++ {
		want := "email_events_" + storetest.MonthsFromNow(ahead).Format("2006_01")
		if name, err := store.MakeLogPartition(t.Context(), retention.EmailEvents, 3); err != nil || name != want {
			t.Errorf("made %q, %v, want %s", name, err, want)
		}
	}
	if name, err := store.MakeLogPartition(t.Context(), retention.EmailEvents, 3); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("of this month: %q, %v", name, err)
	}
	if n := constraints(t, d); n != 0 {
		t.Errorf("%d constraints are left", n)
	}
}

// A large default partition is read while others use it, and not under the lock with which a partition is attached.
func TestMakeLogPartition_ReadsWithoutALock(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	fillDefault(t, d)
	read := func(statement string) (n int, commit func() error) {
		t.Helper()
		tx, err := d.SQL.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		counted := func() (rows int) { // what the session has read and not reported to the server's statistics yet
			if err := tx.QueryRowContext(t.Context(), `SELECT seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'email_events_default'`).Scan(&rows); err != nil {
				t.Fatal(err)
			}
			return rows
		}
		n = -counted()
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
		n += counted()
		return n, tx.Commit
	}
	const prove = `SELECT prove_log_partition('email_events', 3)`
	n, commit := read(prove)
	if err := commit(); n != 0 || err != nil {
		t.Errorf("%d rows were read under the first lock, %v", n, err)
	}
	n, commit = read(prove)
	d.Run(t, `UPDATE email_events_default SET created_at = now() WHERE email_log_id = (SELECT email_log_id FROM email_events_default LIMIT 1)`) // not blocked
	if err := commit(); n == 0 || err != nil {
		t.Errorf("%d rows were read by the proof, %v", n, err)
	}
	n, commit = read(`SELECT make_log_partition('email_events', 3)`)
	if err := commit(); n != 0 || err != nil || partitions(t, d, retention.EmailEvents) != 3 {
		t.Errorf("%d rows were read under the lock, %v, %d partitions", n, err, partitions(t, d, retention.EmailEvents))
	}
}

// Reading a large default partition may take longer than other statements may, for the server and for the client.
func TestMakeLogPartition_SlowProof(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	fillDefault(t, d)
	// Beyond the statement timeout, the client's cancel after it, and the time after which a silent connection is closed.
	d.Run(t, `CREATE FUNCTION slow() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM pg_sleep(10) FROM pg_constraint WHERE conrelid = 'email_events_default'::regclass AND conname LIKE '%without%' AND NOT convalidated; END $$`)
	d.Run(t, `CREATE EVENT TRIGGER slow ON ddl_command_start WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION slow()`)
	limited, err := store.Open(t.Context(), d.URL, store.Options{StatementTimeout: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(limited.Close)
	want := "email_events_" + storetest.MonthsFromNow(2).Format("2006_01")
	if name, err := retention.New(limited.DB()).MakeLogPartition(t.Context(), retention.EmailEvents, 3); err != nil || name != want {
		t.Errorf("made %q, %v, want %s", name, err, want)
	}
}

// A proof that fails, or is no longer needed, leaves no constraint behind, which would refuse rows.
func TestMakeLogPartition_ProofsAreDropped(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	fillDefault(t, d)
	store := retention.New(d.Store.DB())
	ahead := storetest.IDOf(-time.Until(storetest.MonthsFromNow(2).Add(day)))
	d.Run(t, `INSERT INTO email_events_default (email_log_id, seq, type, created_at) VALUES ($1, 1, 'RECEIVED', now())`, ahead)
	if name, err := store.MakeLogPartition(t.Context(), retention.EmailEvents, 3); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("%q, %v", name, err)
	}
	if storetest.Ask[bool](t, d, `SELECT prove_log_partition('email_events', 3)`) {
		t.Error("a proof is begun that must fail")
	}
	if n := constraints(t, d); n != 0 {
		t.Errorf("%d constraints of a proof that failed", n)
	}
	d.Run(t, `DELETE FROM email_events_default WHERE email_log_id = $1`, ahead)
	d.Run(t, `SELECT prove_log_partition('email_events', 3)`)
	if n := constraints(t, d); n != 1 {
		t.Errorf("%d constraints", n)
	}
	d.Run(t, `TRUNCATE email_events_default`)
	if names := made(t, d, retention.EmailEvents, 3); len(names) != 2 {
		t.Errorf("made %v", names)
	}
	if n := constraints(t, d); n != 0 {
		t.Errorf("%d constraints are left", n)
	}
}

// A month that is kept because too many of its emails are in the outbox does not keep later ones.
func TestDropLogPartition_BesideAKeptOne(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	kept, due := storetest.PastPartition(t, d, retention.EmailEvents, 4), storetest.PastPartition(t, d, retention.EmailEvents, 3)
	d.Run(t, `INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, next_at, expires_at)
		SELECT (substr($2::text, 1, 13) || substr(gen_random_uuid()::text, 14))::uuid, l.company_id, l.id, 'r', '{}', 's', '<p>', sha256('c'), 1, now() + interval '1 month', now() + interval '2 months'
		FROM dispatch_lanes l, generate_series(1, 50001) WHERE l.company_id = $1 AND l.queue = 'email:send' AND l.mailing_id IS NULL`,
		company, storetest.IDOf(time.Since(storetest.MonthsFromNow(-4).Add(10*day))))
	store := retention.New(d.Store.DB())
	for _, want := range []retention.DroppedPartition{{Name: due, Dropped: true}, {Name: kept}, {Name: kept}} {
		if p, err := store.DropLogPartition(t.Context(), retention.EmailEvents, day); err != nil || p != want {
			t.Errorf("%+v, %v, want %+v", p, err, want)
		}
	}
}
