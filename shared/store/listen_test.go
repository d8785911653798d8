package store_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/store"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
)

func TestListener(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	listener, err := lane.NewListener(d.URL, slog.New(slog.DiscardHandler))
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
	var ended int // a ping is an empty query
	if err := d.SQL.QueryRowContext(t.Context(), `
		SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND backend_type = 'client backend' AND (query = '' OR query LIKE 'LISTEN%')`).Scan(&ended); err != nil || ended != 1 {
		t.Fatalf("ended %d sessions, error %v", ended, err)
	}
	receive(t, listener) // reconnecting wakes without a Wake
	wakeUntilReceived(t, d, listener)
}

// A server that refuses writes may have been replaced and run on: the listener leaves it, as the pool does, and
// connects to it again when it accepts writes.
func TestListener_LeavesReadOnlyServer(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s := open(t, d.URL, store.Options{MaxConns: 1})
	lines := make(lostLines, 10)
	listener, err := lane.NewListener(d.URL, slog.New(slog.NewTextHandler(lines, nil)))
	if err != nil {
		t.Fatal(err)
	}
	listener.Follow(s.DB())
	if err := listener.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Stop(context.Background()) })
	wakeUntilReceived(t, d, listener)

	name := ask[string](t, d, `SELECT quote_ident(current_database())`)
	if _, err := d.SQL.ExecContext(t.Context(), `ALTER DATABASE `+name+` SET default_transaction_read_only = on`); err != nil {
		t.Fatal(err)
	}
	if err := turnReadOnly(t.Context(), s, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.NewAccepter().Accept(t.Context(), storetest.NewEmail(d.Company(t), nil)); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("got %v, want ErrUnavailable", err)
	}
	waittest.Until(t, "the listener has left the server", func() bool { return !listener.Listening() })
	before := ask[int](t, d, sessionsSQL)
	waittest.Until(t, "the listener has tried the server again", func() bool { return ask[int](t, d, sessionsSQL) >= before+3 })
	if listener.Listening() {
		t.Error("it listens to a server that refuses writes")
	}
	if len(lines) != 1 {
		t.Errorf("%d lines say that it does not listen, want 1", len(lines))
	}

	if _, err := d.SQL.ExecContext(t.Context(), `BEGIN READ WRITE; ALTER DATABASE `+name+` RESET default_transaction_read_only; COMMIT`); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the listener listens to a server that accepts writes again", listener.Listening)
	wakeUntilReceived(t, d, listener)
}

// sessionsSQL returns how many sessions the database has had.
const sessionsSQL = `SELECT sessions FROM pg_stat_database WHERE datname = current_database()`

// A failed network keeps the connection open. The listener gives the connection up, and can be stopped meanwhile without waiting
// for TCP.
func TestListener_SilentServer(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	proxy := storetest.NewProxy(t, d)
	lost := make(lostLines, 1)
	listener, err := lane.NewListener(proxy.URL, slog.New(slog.NewTextHandler(lost, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	wakeUntilReceived(t, d, listener)
	proxy.DropResponses(t)
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

// A hot standby refuses LISTEN until it is promoted, and keeps the connections then. lib/pq repeats only a LISTEN that has
// succeeded: of several listeners, some connect before they send it, and some send it with the connection.
func TestListener_RefusedFirst(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	proxy := storetest.NewProxy(t, d)
	proxy.RefuseListens()
	lines := make(listenLines, 100)
	log := slog.New(slog.NewTextHandler(lines, nil))
	var listeners []*lane.Listener
	for range 12 {
		listener, err := lane.NewListener(proxy.URL, log)
		if err != nil {
			t.Fatal(err)
		}
		if err := listener.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Stop(context.Background()) })
		listeners = append(listeners, listener)
	}
	awaitRefused := func() {
		from := proxy.RefusedListens()
		waittest.Until(t, "LISTEN is repeated", func() bool { return proxy.RefusedListens() >= from+3*len(listeners) })
	}
	awaitRefused()
	proxy.CutAll() // new connections do not listen either
	awaitRefused()
	for i, listener := range listeners {
		if listener.Listening() {
			t.Errorf("listener %d reports that it listens", i)
		}
	}
	if n := len(lines); n > 0 {
		t.Errorf("%d listeners log that they listen", n)
	}
	proxy.AllowListens()
	for _, listener := range listeners {
		waittest.Until(t, "the listener listens", listener.Listening)
		wakeUntilReceived(t, d, listener) // that it begins to listen counts as a wake-up
		wakeUntilReceived(t, d, listener)
	}
	if n := len(lines); n != len(listeners) {
		t.Errorf("%d listeners log that they listen, want %d", n, len(listeners))
	}
}

// listenLines is a log that keeps the lines about a listener that listens.
type listenLines chan string

func (l listenLines) Write(line []byte) (int, error) {
	if strings.Contains(string(line), `msg="listening`) {
		l <- string(line)
	}
	return len(line), nil
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
func wakeUntilReceived(t *testing.T, d storetest.Database, listener *lane.Listener) {
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

func receive(t *testing.T, listener *lane.Listener) {
	t.Helper()
	select {
	case <-listener.Woken():
	case <-time.After(3 * time.Minute):
		t.Fatal("the listener has received no wake-up")
	}
}

func listenTo(t *testing.T, d storetest.Database) *lane.Listener {
	t.Helper()
	listener, err := lane.NewListener(d.URL, slog.New(slog.DiscardHandler))
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
func receiveUntil(t *testing.T, listener *lane.Listener, expected func(lanes []int64, all bool) bool) {
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
