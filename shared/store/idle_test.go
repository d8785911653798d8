package store_test

import (
	"errors"
	"iter"
	"testing"

	"email-gateway/schema"
	"email-gateway/shared/store"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/storetest"
)

// The lines of an upload arrive more slowly than idle_in_transaction_session_timeout allows: the upload succeeds
// nevertheless, and another idle transaction is ended.
func TestIngestMailing_ASlowClient(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	s := open(t, d.URL+"&idle_in_transaction_session_timeout=2000", store.Options{})
	slow := func() iter.Seq2[mailing.Line, error] {
		return func(yield func(mailing.Line, error) bool) {
			storetest.WaitFor(t, d, `SELECT count(*) = 1 FROM pg_stat_activity
				WHERE datname = current_database() AND state = 'idle in transaction' AND state_change < now() - interval '2500 ms'`)
			for line := range 3 {
				if !yield(entry(line+1, []string{"a@example.com", "b@example.com", "c@example.com"}[line], ""), nil) {
					return
				}
			}
		}
	}
	m := storetest.NewMailing(company, nil)
	if counts, _, err := s.IngestMailing(t.Context(), m, slow()); err != nil || counts.Accepted != 3 {
		t.Errorf("%+v, %v", counts, err)
	}
	tx, err := s.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	storetest.WaitFor(t, d, `SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'`)
	if _, err := tx.ExecContext(t.Context(), `SELECT 1`); err == nil {
		t.Error("an idle transaction was not ended")
	}
}

// Each program's role ends transactions that idle, which holds behind a PgBouncer too. Many
// may make the roles at the same time.
func TestRoles_EndIdleTransactions(t *testing.T) {
	t.Parallel()
	d, other := storetest.New(t), storetest.New(t) // of one server
	errs := make(chan error)
	for _, db := range []storetest.Database{d, other} {
		go func() { errs <- schema.Roles(t.Context(), db.SQL) }()
	}
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
	if n := ask[int](t, d, `SELECT count(*) FROM pg_roles WHERE rolname LIKE 'gateway\_%' AND rolcanlogin
		AND rolconfig @> '{idle_in_transaction_session_timeout=5s,enable_seqscan=off,jit=off,default_transaction_isolation=read committed,search_path=public,TimeZone=UTC}'`); n != 5 {
		t.Errorf("%d of 5 roles have what a pooler does not pass on", n)
	}
}

// A program's connection takes the setting from its role or database, and the store reports where there is none.
func TestServer_EndsIdle(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	for value, want := range map[string]bool{"7s": true, "0": false} {
		run(t, d, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET idle_in_transaction_session_timeout = %L', current_database(), '`+value+`'); END $$`)
		s := open(t, d.URL, store.Options{})
		server, err := s.Server(t.Context())
		if err != nil || server.EndsIdle != want {
			t.Errorf("set to %s: ends idle transactions %v, %v", value, server.EndsIdle, err)
		}
		var now string
		if err := s.DB().QueryRowContext(t.Context(), `SHOW idle_in_transaction_session_timeout`).Scan(&now); err != nil || now != value {
			t.Errorf("set to %s, a connection has %s, %v", value, now, err)
		}
	}
}
