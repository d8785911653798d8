package service

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The limits documented in SECURITY.md.
func TestNewHTTP_HasLimits(t *testing.T) {
	t.Parallel()
	s := NewHTTP(slog.New(slog.DiscardHandler), "127.0.0.1:0", nil).server
	if s.ReadHeaderTimeout != 15*time.Second || s.ReadTimeout != time.Minute || s.WriteTimeout != time.Minute ||
		s.IdleTimeout != 620*time.Second || s.MaxHeaderBytes != 64<<10 {
		t.Errorf("headers %s, request %s, answer %s, idle %s, %d bytes of headers",
			s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout, s.MaxHeaderBytes)
	}
}

// The same limits scaled to two hundredths: whatever a client is slow with, its connection and its
// handler end.
func TestHTTP_SlowClients(t *testing.T) {
	t.Parallel()
	read, wrote := make(chan error, 1), make(chan error, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /body", func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		read <- err
	})
	mux.HandleFunc("GET /answer", func(w http.ResponseWriter, _ *http.Request) {
		var err error
		for line := strings.Repeat("x", 64<<10); err == nil; {
			_, err = io.WriteString(w, line)
		}
		wrote <- err
	})
	h := NewHTTP(slog.New(slog.DiscardHandler), "127.0.0.1:0", mux)
	for _, limit := range []*time.Duration{&h.server.ReadHeaderTimeout, &h.server.ReadTimeout, &h.server.WriteTimeout, &h.server.IdleTimeout} {
		*limit /= 200
	}
	if err := h.Start(t.Context(), func(error) {}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.server.Close() }()

	for name, begin := range map[string]string{
		"nothing":      "",
		"slow headers": "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ",
		"slow body":    "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
		"slow chunks":  "POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\nx",
		"idle":         "GET /none HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		conn := dialTo(t, h.Addr())
		if _, err := io.WriteString(conn, begin); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil { // until the server closes the connection
			t.Errorf("%s: %v", name, err)
		}
		if strings.HasPrefix(begin, "POST") {
			if err := <-read; err == nil {
				t.Errorf("%s: the handler read a whole body", name)
			}
		}
	}

	conn := dialTo(t, h.Addr())
	if _, err := io.WriteString(conn, "GET /answer HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-wrote: // nothing reads the response
		if err == nil {
			t.Error("the endless response was written without an error")
		}
	case <-time.After(3 * time.Minute):
		t.Error("the handler is still writing to a client that does not read")
	}
}

func dialTo(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}
