package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"email-gateway/shared/htmlcheck"
)

// Each copy is a whole request of the same length with its own key, whose body is JSON of about 2
// KB with its own recipient.
func TestEmailTemplate(t *testing.T) {
	t.Parallel()
	l, err := newEmailTemplate()
	if err != nil {
		t.Fatal(err)
	}
	if n := l.length(); n < 1800 || n > 2400 {
		t.Errorf("a request body has %d bytes", n)
	}
	write := l.request("gw_test_key")
	seen := make(map[string]bool)
	for _, serial := range []int64{1, 42, 999_999_999_999} {
		request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(write(nil, serial))))
		if err != nil {
			t.Fatal(err)
		}
		var body struct {
			To, HTML  string
			Recipient struct{ Email, ExternalID string }
		}
		text, err := io.ReadAll(request.Body)
		if err != nil || len(text) != l.length() {
			t.Fatalf("a body of %d bytes, %v; want %d", len(text), err, l.length())
		}
		if err := json.Unmarshal(text, &body); err != nil {
			t.Fatal(err)
		}
		key := request.Header.Get("Idempotency-Key")
		if seen[key] || seen[body.To] || body.Recipient.Email != body.To || key == "" {
			t.Errorf("the key %q or the address %q is not unique, or the recipient is %q", key, body.To, body.Recipient.Email)
		}
		seen[key], seen[body.To] = true, true
		if err := htmlcheck.Check(body.HTML); err != nil {
			t.Errorf("the html is refused: %v", err)
		}
	}
}

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
	p, err := h.run(t.Context(), 20*time.Millisecond, 200*time.Millisecond, nil)
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(callers) != 4 {
		t.Errorf("there were %d connections", len(callers))
	}
	if p.responses == 0 || p.responses > len(bodies) || p.rate <= 0 || p.p50 <= 0 || p.p99 < p.p50 {
		t.Errorf("result %+v of %d requests", p, len(bodies))
	}
	for body, n := range bodies {
		if n != 1 {
			t.Errorf("%q came %d times", body, n)
		}
	}
}

func newTestLoadGenerator(addr string) loadGenerator {
	return loadGenerator{
		addr: addr, connections: 4, status: http.StatusAccepted, serial: new(atomic.Int64),
		request: func(dst []byte, serial int64) []byte {
			return appendSerial(append(dst, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n"...), serial)
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
		_, err := newTestLoadGenerator(server.Listener.Addr().String()).run(t.Context(), time.Second, 10*time.Second, nil)
		if err == nil || name == "429" && !strings.Contains(err.Error(), "429 slowly") {
			t.Errorf("%s: the error is %v", name, err)
		}
		server.Close()
	}
}

// A process's time includes that of its children, running and exited.
func TestUsage(t *testing.T) {
	t.Parallel()
	busy := `n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done`
	cmd := exec.Command("sh", "-c", busy+`; sh -c '`+busy+`'; echo done; read line`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	u, err := usageOf(cmd.Process.Pid)
	if err != nil || u.CPU <= 0 || u.CPU%tick != 0 || u.Resident <= 0 || u.Peak < u.Resident {
		t.Errorf("the usage is %+v, %v", u, err)
	}
	if whole, err := usageOf(os.Getpid()); err != nil || whole.CPU < u.CPU {
		t.Errorf("the usage with its child is %+v, %v; of the child alone %+v", whole, err, u)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // read fails at the end of its input
	if _, err := usageOf(cmd.Process.Pid); err == nil {
		t.Error("an exited process has a usage")
	}
}

func TestReadStat(t *testing.T) {
	t.Parallel()
	line := "4711 (a) (name) S 12 4711 4711 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 5 6 7"
	pid, parent, spent, err := readStat([]byte(line))
	if err != nil || pid != 4711 || parent != 12 || spent != 127*tick {
		t.Errorf("%d, %d, %s, %v", pid, parent, spent, err)
	}
	for _, broken := range []string{"", "1 (x) S", "x (y) S 12 4711 4711 0 -1 4194560 1 2 3 4 100 20 3 4 20"} {
		if _, _, _, err := readStat([]byte(broken)); err == nil {
			t.Errorf("%q is read", broken)
		}
	}
}
