package load

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"email-gateway/scripts/bench/environment"
)

// The load generator sends a different request each time over kept connections, and counts the responses
// during the measurement.
func TestLoadGenerator(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	bodies, callers := make(map[string]int), make(map[string]bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		mu.Lock()
		bodies[string(text)]++
		callers[r.RemoteAddr] = true
		mu.Unlock()
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "stored")
	}))
	defer server.Close()
	h := newTestLoadGenerator(server.Listener.Addr().String())
	p, err := h.Run(t.Context(), 20*time.Millisecond, 200*time.Millisecond, nil)
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(callers) != 4 {
		t.Errorf("there were %d connections", len(callers))
	}
	if p.Responses == 0 || p.Responses > len(bodies) || p.Rate <= 0 || p.P50 <= 0 || p.P99 < p.P50 {
		t.Errorf("result %+v of %d requests", p, len(bodies))
	}
	for body, n := range bodies {
		if n != 1 {
			t.Errorf("%q came %d times", body, n)
		}
	}
}

func newTestLoadGenerator(addr string) Generator {
	return Generator{
		Addr: addr, Connections: 4, Status: http.StatusAccepted, Serial: new(atomic.Int64),
		Request: func(dst []byte, serial int64) []byte {
			return environment.AppendSerial(append(dst, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n"...), serial)
		},
	}
}

func TestLoadGenerator_UnexpectedResponses(t *testing.T) {
	t.Parallel()
	for name, response := range map[string]http.HandlerFunc{
		"429": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "slowly", http.StatusTooManyRequests) },
		"202": func(w http.ResponseWriter, _ *http.Request) { // in pieces
			w.WriteHeader(http.StatusAccepted)
			_ = http.NewResponseController(w).Flush()
		},
	} {
		server := httptest.NewServer(response)
		_, err := newTestLoadGenerator(server.Listener.Addr().String()).Run(t.Context(), time.Second, 10*time.Second, nil)
		if err == nil || name == "429" && !strings.Contains(err.Error(), "429 slowly") {
			t.Errorf("%s: the error is %v", name, err)
		}
		server.Close()
	}
}
