package ses_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/provider/ses"
)

// If a pooled connection breaks before a byte is written, the server receives the email at most
// once, whatever net/http does.
func TestDeadConnectionSendsOnce(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	var dead atomic.Bool
	s := newSender(t, ses.Config{Endpoint: b.server.URL}.WithDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return &breakable{c, &dead}, err
	}))
	if _, err := s.Send(t.Context(), message()); err != nil {
		t.Fatalf("first Send: %v", err)
	}
	dead.Store(true)
	_, err := s.Send(t.Context(), message())
	var f *provider.Failure
	switch n := len(b.Received()); {
	case errors.As(err, &f) && f.Outcome == provider.Unknown && n == 1: // not replayed
	case err == nil && n == 2: // replayed on a new connection
	default:
		t.Errorf("second Send: %v, and the server saw %d requests", err, n)
	}
}

// A machine that was suspended before the call got its pooled connection writes nothing to it, and sends the next email.
func TestSuspendedBeforePooledConnection(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newSender(t, ses.Config{Endpoint: b.server.URL, IdleTimeout: time.Minute})
	if _, err := s.Send(t.Context(), message()); err != nil {
		t.Fatalf("first Send: %v", err)
	}
	_, err := s.Send(suspendedContext{t.Context()}, message())
	var f *provider.Failure
	if !errors.As(err, &f) || f.Outcome != provider.Unspent || len(b.Received()) != 1 {
		t.Errorf("Send on a suspended machine: %v, and the server saw %d requests", err, len(b.Received()))
	}
	if _, err := s.Send(t.Context(), message()); err != nil || len(b.Received()) != 2 {
		t.Errorf("Send after that: %v, and the server saw %d requests", err, len(b.Received()))
	}
}

// breakable is a connection that fails once, at the first write after it was broken.
type breakable struct {
	net.Conn
	dead *atomic.Bool
}

func (m *breakable) Write(p []byte) (int, error) {
	if m.dead.CompareAndSwap(true, false) {
		m.Close()
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
	}
	return m.Conn.Write(p)
}

// counted is a connection that counts writes.
type counted struct {
	net.Conn
	writes *atomic.Int32
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

func countWrites(writes *atomic.Int32) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return &counted{c, writes}, err
	}
}

// An ordinary email is sent by one write; a large one is sent too.
func TestOneWrite(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	var writes atomic.Int32
	s := newSender(t, ses.Config{Endpoint: b.server.URL}.WithDialer(countWrites(&writes)))
	for _, size := range []int{1, 12 << 10, 14 << 10, 16 << 10, 512 << 10} {
		m := message()
		m.HTML = strings.Repeat("a", size)
		writes.Store(0)
		if _, err := s.Send(t.Context(), m); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if n := writes.Load(); size <= 12<<10 && n != 1 {
			t.Errorf("%d bytes were sent by %d writes", size, n)
		}
		if all := b.Received(); all[len(all)-1].HTML != m.HTML {
			t.Errorf("%d bytes did not arrive", size)
		}
	}
}

// The pool is as large as the concurrency, so that calls do not dial again.
func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	const senders, each = 16, 20
	b := newBackend(t)
	var dialled atomic.Int32
	s := newSender(t, ses.Config{Endpoint: b.server.URL, Concurrency: senders, IdleTimeout: time.Minute}.WithDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}))
	done := make(chan error)
	for range senders {
		go func() {
			var failures error
			for range each {
				_, err := s.Send(t.Context(), message())
				failures = errors.Join(failures, err)
			}
			done <- failures
		}()
	}
	for range senders {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	// net/http sometimes drops a connection on a loaded machine; a pool that is too small dials for
	// every other call.
	if n := dialled.Load(); n > 2*senders {
		t.Errorf("%d connections for %d senders", n, senders)
	}
}
