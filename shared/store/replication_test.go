package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/servertest"
	"email-gateway/shared/store"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// While no synchronous standby answers, nothing counts as written, whatever Postgres reports: neither a statement, nor
// a transaction, nor what an earlier one has left. No server connection is left waiting.
func TestUnreplicated(t *testing.T) {
	t.Parallel()
	d := storetest.NewOn(t, servertest.Start(t, "postgres").URL)
	company := d.Company(t)
	s := open(t, d.URL, store.Options{StatementTimeout: time.Second})
	accepter := s.NewAccepter()
	unhurried := open(t, d.URL, store.Options{StatementTimeout: 5 * time.Minute}) // its writes wait until the test ends them
	before := storetest.NewEmail(company, nil)
	if err := accepter.Accept(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	standby := func(name string, want error) {
		for _, statement := range []string{`ALTER SYSTEM SET synchronous_standby_names = '` + name + `'`, `SELECT pg_reload_conf()`} {
			if _, err := d.SQL.ExecContext(context.Background(), statement); err != nil {
				t.Error(err)
			}
		}
		// Postgres applies the setting a moment later.
		for end := time.Now().Add(3 * time.Minute); !errors.Is(s.Confirm(context.Background()), want); {
			if time.Now().After(end) {
				t.Fatalf("synchronous_standby_names = %q has no effect: %v", name, s.Confirm(context.Background()))
			}
		}
	}
	t.Cleanup(func() { standby("", nil) })
	standby("nobody", store.ErrUnreplicated)
	counted := s.Unreplicated() + unhurried.Unreplicated()

	alone, about := storetest.NewEmail(company, nil), storetest.NewEmail(company, nil)
	about.Aggregate = &outbox.Aggregate{Type: "interview", ID: "1", EventType: "REMINDER"}
	for name, write := range map[string]func() error{
		"transaction": func() error { return accepter.Accept(t.Context(), about) },
		"statement":   func() error { return s.ReportStatus(t.Context(), "worker", "w", time.Now(), nil) },
		"caller that leaves": func() error {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			errs := make(chan error, 1)
			go func() { errs <- unhurried.ReportStatus(ctx, "worker", "w2", time.Now(), nil) }()
			storetest.WaitFor(t, d, `SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
			leave()
			return <-errs
		},
		"rows, cancelled by an operator": func() error {
			errs := make(chan error, 1)
			go func() { errs <- unhurried.NewAccepter().Accept(t.Context(), alone) }()
			storetest.WaitFor(t, d, `SELECT count(pg_cancel_backend(pid)) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
			return <-errs
		},
	} {
		if err := untilUnknown(t, write); !errors.Is(err, store.ErrUnreplicated) || !errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("%s: %v, want ErrUnreplicated and ErrUnknownOutcome", name, err)
		}
	}
	if n := s.Unreplicated() + unhurried.Unreplicated() - counted; n != 4 {
		t.Errorf("%d commits counted, want 4", n)
	}
	other := storetest.NewEmail(company, nil)
	if err := untilUnknown(t, func() error { return accepter.Accept(t.Context(), other) }); !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("rows: %v, want ErrUnknownOutcome", err)
	}
	// The row is visible, but must not be relied on.
	if n := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE id = $1`, alone.ID); n != 1 {
		t.Errorf("%d rows of the email", n)
	}
	for _, id := range []uuid.UUID{alone.ID, about.ID, other.ID, before.ID} {
		if found, err := s.Exists(t.Context(), id); found || err == nil {
			t.Errorf("exists: %t, %v", found, err)
		}
	}
	if err := untilUnknown(t, func() error { return accepter.Accept(t.Context(), alone) }); !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("once more: %v", err)
	}
	if err := s.Confirm(t.Context()); !errors.Is(err, store.ErrUnreplicated) {
		t.Errorf("confirm: %v", err)
	}
	storetest.WaitFor(t, d, `SELECT count(*) = 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)

	busy := open(t, d.URL, store.Options{MaxConns: 1})
	if err := busy.Confirm(t.Context()); !errors.Is(err, store.ErrUnreplicated) {
		t.Errorf("confirm: %v", err)
	}
	held := takeConnection(t, busy)
	timesOut(t, busy, true)
	held()

	standby("", nil)
	if err := busy.Confirm(t.Context()); err != nil {
		t.Error(err)
	}
	held = takeConnection(t, busy)
	timesOut(t, busy, false)
	held()
	for _, id := range []uuid.UUID{alone.ID, about.ID, other.ID, before.ID} {
		if found, err := s.Exists(t.Context(), id); !found || err != nil {
			t.Errorf("without a synchronous standby: %t, %v", found, err)
		}
	}
}

// untilUnknown repeats a write that Postgres ended before its commit, as statement_timeout does on a busy machine: nothing was
// written.
func untilUnknown(t *testing.T, write func() error) error {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; {
		err := write()
		if errors.Is(err, store.ErrUnknownOutcome) || !errors.Is(err, store.ErrUnavailable) || time.Now().After(end) {
			return err
		}
	}
}

// takeConnection takes the only connection of a store.
func takeConnection(t *testing.T, s *store.Store) (release func()) {
	t.Helper()
	conn, err := s.DB().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// timesOut checks that a store whose connections are all in use times out, and with which error: ErrUnreplicated if a standby
// failed to confirm a commit a moment ago and has confirmed none since.
func timesOut(t *testing.T, s *store.Store, unreplicated bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for name, err := range map[string]error{
		"confirm": s.Confirm(t.Context()), "report": s.ReportStatus(ctx, "worker", "w", time.Now(), nil),
	} {
		if !store.IsOutage(err) || errors.Is(err, store.ErrUnreplicated) != unreplicated {
			t.Errorf("%s without a free connection: %v, want ErrUnreplicated: %t", name, err, unreplicated)
		}
	}
}
