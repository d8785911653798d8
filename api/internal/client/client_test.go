package client_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"email-gateway/api/internal/client"
)

// answering returns a client of a server with this handler.
func answering(t *testing.T, answer http.HandlerFunc) *client.Client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c, err := client.New(server.URL+"/", "gw_test_a_b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func refuse(w http.ResponseWriter, status int, after, text string) {
	if after != "" {
		w.Header().Set("Retry-After", after)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprint(w, text)
}

const busy = `{"type":"about:blank","title":"x","status":429,"detail":"too many","code":"RATE_LIMITED","requestId":"r"}`

func TestNew(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "127.0.0.1:8080", "ftp://x", "http://", "http://user:secret@x", "http://x?key=secret", "http://x\x00"} {
		if _, err := client.New(address, "k"); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// Rejected requests are retried after Retry-After.
func TestRepeats(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch requests.Add(1) {
		case 1:
			refuse(w, http.StatusTooManyRequests, "1", busy)
		case 2:
			if r.Header.Get("Idempotency-Key") == "" {
				t.Error("the request has no Idempotency-Key")
			}
			conn, _, _ := http.NewResponseController(w).Hijack()
			_ = conn.Close() // the outcome is unknown to the client
		default:
			fmt.Fprintf(w, `{"got": %q, "key": %q, "once": %q}`, body, r.Header.Get("Authorization"), r.Header.Get("Idempotency-Key"))
		}
	})
	var out struct{ Got, Key, Once string }
	if err := c.Post(t.Context(), "/v1/x", map[string]int{"a": 1}, &out, "once-1"); err != nil {
		t.Fatal(err)
	}
	if requests.Load() != 3 || out.Got != `{"a":1}` || out.Key != "Bearer gw_test_a_b" || out.Once != "once-1" {
		t.Errorf("%d requests, want 3; answer %+v", requests.Load(), out)
	}
}

// Without an Idempotency-Key no request is repeated that may have been processed.
func TestRepeats_NotWithoutIdempotencyKey(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		conn, _, _ := http.NewResponseController(w).Hijack()
		_ = conn.Close()
	})
	err := c.Post(t.Context(), "/v1/x/cancel", nil, nil, "")
	var silent *client.UnreachableError
	if !errors.As(err, &silent) || !silent.Began || requests.Load() != 1 {
		t.Errorf("%d requests, want 1: %v", requests.Load(), err)
	}
	unreachable, err := client.New("http://127.0.0.1:1", "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := unreachable.Get(t.Context(), "/", nil, nil); !errors.As(err, &silent) || silent.Began {
		t.Errorf("unreachable server: %v", err)
	}
}

// A request that creates a new object each time is sent once, whatever the answer is: an older api may have processed
// a request that it rejects. A request that takes effect only once is sent again, but not after a 503.
func TestRepeats_Steps(t *testing.T) {
	t.Parallel()
	unavailable, locked := strings.Replace(busy, "429", "503", 1), strings.Replace(busy, "429", "409", 1)
	for name, tt := range map[string]struct {
		send     func(c *client.Client) error
		status   int
		answer   string
		requests int64
	}{
		"once, 429":          {func(c *client.Client) error { return c.Post(t.Context(), "/v1/webhooks", nil, nil, "") }, http.StatusTooManyRequests, busy, 1},
		"once, 503":          {func(c *client.Client) error { return c.Post(t.Context(), "/v1/webhooks", nil, nil, "") }, http.StatusServiceUnavailable, unavailable, 1},
		"a step, 429":        {func(c *client.Client) error { return c.PostStep(t.Context(), "/v1/x/pause", nil) }, http.StatusTooManyRequests, busy, 2},
		"a step, 503":        {func(c *client.Client) error { return c.PostStep(t.Context(), "/v1/x/pause", nil) }, http.StatusServiceUnavailable, unavailable, 1},
		"a step, 409":        {func(c *client.Client) error { return c.PostStep(t.Context(), "/v1/x/pause", nil) }, http.StatusConflict, locked, 2},
		"a delete, 429":      {func(c *client.Client) error { return c.Delete(t.Context(), "/v1/x", nil) }, http.StatusTooManyRequests, busy, 2},
		"again, proxy's 502": {func(c *client.Client) error { return c.PostAgain(t.Context(), "/v1/x", nil, nil) }, http.StatusBadGateway, "<html>", 2},
		"again, proxy's 504": {func(c *client.Client) error { return c.Get(t.Context(), "/v1/x", nil, nil) }, http.StatusGatewayTimeout, "<html>", 2},
		"again, proxy's 500": {func(c *client.Client) error { return c.PostAgain(t.Context(), "/v1/x", nil, nil) }, http.StatusInternalServerError, "<html>", 1},
		"again, proxy's 525": {func(c *client.Client) error { return c.Get(t.Context(), "/v1/x", nil, nil) }, 525, "<html>", 1},
		"again, 503":         {func(c *client.Client) error { return c.PostAgain(t.Context(), "/v1/x", nil, nil) }, http.StatusServiceUnavailable, unavailable, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				if requests.Add(1) == 1 {
					retryAfter := "1"
					if tt.answer == "<html>" {
						retryAfter = ""
					}
					refuse(w, tt.status, retryAfter, tt.answer)
					return
				}
				fmt.Fprint(w, `{}`)
			})
			if err := tt.send(c); requests.Load() != tt.requests || (err == nil) != (tt.requests == 2) {
				t.Errorf("%d requests, want %d: %v", requests.Load(), tt.requests, err)
			}
		})
	}
}

func TestProblem(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status       int
		answer, want string
	}{
		{
			http.StatusUnprocessableEntity, `{"status":422,"detail":"2 fields are not valid","code":"VALIDATION_FAILED","requestId":"r",
			"errors":[{"field":"to","code":"INVALID_EMAIL","message":"is not an email address"},{"field":"subject","code":"REQUIRED","message":"is required"}]}`,
			"VALIDATION_FAILED: 2 fields are not valid\n  to is not an email address (INVALID_EMAIL)\n  subject is required (REQUIRED)",
		},
		{
			http.StatusUnprocessableEntity, `{"status":422,"detail":"to is required","code":"X","requestId":"r","errors":[{"field":"to","code":"REQUIRED","message":"is required"}]}`,
			"X: to is required",
		},
		{http.StatusInternalServerError, `{"status":500,"detail":"failed","code":"INTERNAL","requestId":"req-7"}`, "INTERNAL: failed [request req-7]"},
		{http.StatusBadGateway, `<html>nginx</html>`, "the response has HTTP status 502 and is not from the gateway: check API_URL"},
		{http.StatusNotFound, `{"error":"not found"}`, "the response has HTTP status 404 and is not from the gateway: check API_URL"},
	} {
		c := answering(t, func(w http.ResponseWriter, _ *http.Request) { refuse(w, tt.status, "", tt.answer) })
		err := c.Get(t.Context(), "/", nil, nil)
		var p *client.Problem
		if !errors.As(err, &p) || p.Status != tt.status || err.Error() != tt.want {
			t.Errorf("%d %s: %v", tt.status, tt.answer, err)
		}
	}
}

// Redirects are not followed, because they would send the key to another host.
func TestRedirect(t *testing.T) {
	t.Parallel()
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			t.Error("the client followed the redirect")
		}
		http.Redirect(w, r, "/elsewhere", http.StatusMovedPermanently)
	})
	if err := c.Get(t.Context(), "/v1/x", nil, nil); err == nil || !strings.Contains(err.Error(), "301") {
		t.Error(err)
	}
}

// endless is a generated file of n bytes.
type endless struct{ left int64 }

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), e.left))
	for i := range p[:n] {
		p[i] = 'x'
	}
	e.left -= int64(n)
	return n, nil
}

// A file is streamed: memory use does not depend on its size.
func TestUpload_ConstantMemory(t *testing.T) {
	t.Parallel()
	const size = 40 << 20
	sum := sha256.New()
	_, _ = io.Copy(sum, &endless{size})
	var length atomic.Int64
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		length.Store(r.ContentLength)
		reader, err := r.MultipartReader()
		if err != nil {
			t.Error(err)
			return
		}
		got := sha256.New()
		for {
			part, err := reader.NextPart()
			if err != nil {
				break
			}
			if part.FileName() != "" {
				_, _ = io.Copy(got, part)
			}
		}
		fmt.Fprintf(w, `{"same": %v}`, string(got.Sum(nil)) == string(sum.Sum(nil)))
	})
	var peak atomic.Uint64
	watching, stop := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for watching.Err() == nil {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapInuse))
			select {
			case <-watching.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	var out struct{ Same bool }
	_, err := c.Upload(t.Context(), client.Upload{Path: "/mailings", Parts: []client.Part{{Name: "subject", Value: "Olá"}}, FileName: "a.csv", File: &endless{size}, FileSize: size}, &out)
	stop()
	<-watched
	if err != nil || !out.Same {
		t.Errorf("%+v, %v", out, err)
	}
	if length.Load() <= size || length.Load() > size+1000 {
		t.Errorf("Content-Length is %d, want %d", length.Load(), size)
	}
	if peak.Load() > 32<<20 {
		t.Errorf("peak memory is %d MiB for a file of %d MiB", peak.Load()>>20, size>>20)
	}
}

// Errors are received before the file is sent.
func TestUpload_RefusedAtOnce(t *testing.T) {
	t.Parallel()
	c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusUnauthorized, "", `{"status":401,"detail":"no key","code":"UNAUTHORIZED","requestId":"r"}`)
	})
	file := &endless{1 << 40}
	_, err := c.Upload(t.Context(), client.Upload{Path: "/mailings", FileName: "a.csv", File: file, FileSize: 1 << 40}, nil)
	var p *client.Problem
	if !errors.As(err, &p) || p.Code != "UNAUTHORIZED" {
		t.Error(err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("input/output error") }

// An unreadable file is not reported as an error of the api.
func TestUpload_BrokenFile(t *testing.T) {
	t.Parallel()
	c := answering(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	for _, size := range []int64{-1, 1000} {
		_, err := c.Upload(t.Context(), client.Upload{Path: "/mailings", FileName: "a.csv", File: broken{}, FileSize: size}, nil)
		if err == nil || err.Error() != "read the file: input/output error" {
			t.Errorf("%d: %v", size, err)
		}
	}
}

// An interrupted download is an error.
func TestDownload(t *testing.T) {
	t.Parallel()
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "line,column,code\n")
		if r.URL.Path == "/broken" {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	})
	var whole, part strings.Builder
	if err := c.Download(t.Context(), "/whole", nil, &whole); err != nil || whole.String() != "line,column,code\n" {
		t.Errorf("%q, %v", whole.String(), err)
	}
	if err := c.Download(t.Context(), "/broken", nil, &part); err == nil || !strings.Contains(err.Error(), "the download was interrupted") {
		t.Errorf("%q, %v", part.String(), err)
	}
}
