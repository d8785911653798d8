package store_test

import (
	"context"
	"log/slog"
	"strings"
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
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := listener.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})

	wakeUntilReceived(t, d, listener)
	var ended int
	if err := d.SQL.QueryRowContext(t.Context(), `
		SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND query LIKE 'LISTEN%'`).Scan(&ended); err != nil || ended != 1 {
		t.Fatalf("ended %d sessions, error %v", ended, err)
	}
	receive(t, listener) // reconnecting wakes without a Wake
	wakeUntilReceived(t, d, listener)
}

// A failed network keeps the connection open. The listener gives the connection up, and can be stopped meanwhile without waiting
// for TCP.
func TestListener_SilentServer(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	proxy := storetest.NewProxy(t, d)
	lost := make(lostLines, 1)
	listener, err := store.NewListener(proxy.URL, slog.New(slog.NewTextHandler(lost, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	wakeUntilReceived(t, d, listener)
	proxy.Hush(t)
	select {
	case <-lost:
	case <-time.After(3 * time.Minute): // it is given up after 15 s
		t.Error("the connection is kept")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := listener.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// lostLines is a log that yields once for lines about a lost connection.
type lostLines chan struct{}

func (l lostLines) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "not listening") {
		select {
		case l <- struct{}{}:
		default:
		}
	}
	return len(line), nil
}

// wakeUntilReceived repeats Wake until the listener receives it, since listening begins some time
// after Start.
func wakeUntilReceived(t *testing.T, d storetest.Database, listener *store.Listener) {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	for {
		if err := d.Store.Wake(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-listener.Woken():
			return
		case <-deadline:
			t.Fatal("the listener has received no Wake")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func receive(t *testing.T, listener *store.Listener) {
	t.Helper()
	select {
	case <-listener.Woken():
	case <-time.After(3 * time.Minute):
		t.Fatal("the listener has received no wake-up")
	}
}

func listenTo(t *testing.T, d storetest.Database) *store.Listener {
	t.Helper()
	listener, err := store.NewListener(d.URL, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Stop(context.Background()) })
	return listener
}

// receiveUntil waits for the expected wake-up.
func receiveUntil(t *testing.T, listener *store.Listener, expected func(lanes []int64, all bool) bool) {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	for {
		named, all := listener.Named()
		var lanes []int64
		for _, l := range named {
			lanes = append(lanes, l.ID)
		}
		if expected(lanes, all) {
			return
		}
		select {
		case <-listener.Woken():
		case <-deadline:
			t.Fatal("the listener has not received the expected wake-up")
		}
	}
}
