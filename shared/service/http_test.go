package service_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"email-gateway/shared/service"
	"email-gateway/shared/waittest"
)

func startHTTP(t *testing.T, handler http.HandlerFunc) *service.HTTP {
	t.Helper()
	h := service.NewHTTP(discard(), "127.0.0.1:0", handler)
	if err := h.Start(t.Context(), func(err error) { t.Errorf("failed: %v", err) }); err != nil {
		t.Fatalf("start: %v", err)
	}
	return h
}

// get makes one request on its own connection and returns the response's body.
func get(ctx context.Context, h *service.HTTP) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.Addr()+"/", nil)
	if err != nil {
		return "", err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func TestHTTP_AnswersOnAFreePort(t *testing.T) {
	t.Parallel()
	h := startHTTP(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	if body, err := get(t.Context(), h); err != nil || body != "hello" {
		t.Errorf("got %q, %v", body, err)
	}
	if err := h.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// A client that speaks HTTP/1.0 takes the end of the stream for the end of the response.
func TestHTTP_ResetOnClose(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		complete, stop bool
		want           error
	}{
		"aborted":  {want: syscall.ECONNRESET},
		"stopped":  {stop: true, want: syscall.ECONNRESET},
		"complete": {complete: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := make(chan struct{})
			h := startHTTP(t, func(w http.ResponseWriter, r *http.Request) {
				service.ResetOnClose(r.Context(), true)
				_, _ = io.WriteString(w, "a piece")
				_ = http.NewResponseController(w).Flush()
				close(begun)
				if tt.stop {
					<-r.Context().Done()
				}
				if !tt.complete {
					panic(http.ErrAbortHandler)
				}
				service.ResetOnClose(r.Context(), false)
			})
			go func() {
				if <-begun; tt.stop {
					ended, end := context.WithCancel(t.Context())
					end()
					_ = h.Stop(ended) // closes the connections
				}
			}()
			conn, err := net.Dial("tcp", h.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(conn); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
			if err := h.Stop(t.Context()); err != nil && !tt.stop {
				t.Error(err)
			}
		})
	}
}

func TestHTTP_PortTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	h := service.NewHTTP(discard(), taken.Addr().String(), http.NotFoundHandler())
	if err := h.Start(t.Context(), nil); err == nil {
		t.Error("Start succeeded on a port in use")
	}
}

// A running request is answered in full; one that arrives after Stop began is not accepted.
func TestHTTP_StopDrains(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	h := startHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-release
		_, _ = io.WriteString(w, "accepted")
	})
	type answer struct {
		body string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		body, err := get(t.Context(), h)
		answered <- answer{body, err}
	}()
	<-arrived

	stopped := make(chan error, 1)
	go func() { stopped <- h.Stop(t.Context()) }()
	waittest.Until(t, "the listener is closed", func() bool {
		connection, err := net.Dial("tcp", h.Addr())
		if err == nil {
			_ = connection.Close()
		}
		return err != nil
	})
	select {
	case err := <-stopped:
		t.Fatalf("Stop returned %v before the request was answered", err)
	default:
	}
	close(release)
	if got := <-answered; got.err != nil || got.body != "accepted" {
		t.Errorf("the request in progress got %q, %v", got.body, got.err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
}

// A request that never ends is aborted when the grace period ends.
func TestHTTP_StopAbortsEndlessRequest(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	h := startHTTP(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	answered := make(chan error, 1)
	go func() {
		_, err := get(t.Context(), h)
		answered <- err
	}()
	<-arrived
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := h.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stop: %v, want the deadline", err)
	}
	if err := <-answered; err == nil {
		t.Error("the request was answered")
	}
}
