package store_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

func TestListener(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	listener, err := store.NewListener(d.URL, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := listener.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})

	wakeUntilHeard(t, d, listener)
	var ended int
	if err := d.SQL.QueryRowContext(t.Context(), `
		SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND query LIKE 'LISTEN%'`).Scan(&ended); err != nil || ended != 1 {
		t.Fatalf("ended %d sessions, error %v", ended, err)
	}
	hear(t, listener) // the new connection, without anybody's Wake
	wakeUntilHeard(t, d, listener)
}

// wakeUntilHeard says it again until it is heard, since listening begins some time
// after Start.
func wakeUntilHeard(t *testing.T, d storetest.Database, listener *store.Listener) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		if err := d.Store.Wake(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-listener.Woken():
			return
		case <-deadline:
			t.Fatal("a Wake was never heard")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func hear(t *testing.T, listener *store.Listener) {
	t.Helper()
	select {
	case <-listener.Woken():
	case <-time.After(30 * time.Second):
		t.Fatal("nothing was heard")
	}
}
