package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/api/internal/apikey"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/tenant"
	"email-gateway/shared/waittest"
)

const validBody = `{"to":"ana@example.com","subject":"Sua fatura","html":"<p>Olá</p>","recipient":{"externalId":"C-1","email":"ana@example.com"}}`

// environ is a complete environment for an api on free ports.
func environ(tb testing.TB, databaseURL string, more ...string) []string {
	tb.Helper()
	return append([]string{
		"DATABASE_URL=" + databaseURL, "API_ADDR=127.0.0.1:0", "METRICS_ADDR=127.0.0.1:0",
		"CPF_CNPJ_KEYS=k:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32)),
		"STORAGE_URL=file://" + tb.TempDir(),
	}, more...)
}

// newKey creates a company with a key without rate limit.
func newKey(tb testing.TB, d storetest.Database) (uuid.UUID, string) {
	tb.Helper()
	key, err := apikey.New("test")
	if err != nil {
		tb.Fatal(err)
	}
	company := d.Company(tb)
	row := tenant.APIKey{
		KeyID: key.ID, CompanyID: company, Name: "test", Environment: "test", SecretSHA256: key.SecretSHA256(),
		Scopes: apikey.Scopes(), Burst: 1,
	}
	if _, err := d.Store.CreateAPIKey(tb.Context(), storetest.Operator(), row); err != nil {
		tb.Fatal(err)
	}
	return company, key.String()
}

// listening reads a log until the listener's line and returns its address. It discards the rest.
func listening(tb testing.TB, log io.Reader, listener string) string {
	tb.Helper()
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Message string
			Context struct{ Listener, Address string }
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Message == "listening" && line.Context.Listener == listener {
			go func() { _, _ = io.Copy(io.Discard, log) }()
			return line.Context.Address
		}
	}
	tb.Fatalf("the api ended without listening: %v", lines.Err())
	return ""
}

// running starts the program in this process.
func running(tb testing.TB, environ []string) (addr string, stop func() error) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := command().Run(ctx, nil, environ, out)
		_ = out.Close()
		done <- err
	}()
	tb.Cleanup(cancel)
	return listening(tb, log, "api"), func() error {
		cancel()
		return <-done
	}
}

func post(ctx context.Context, addr, key string) (int, string, error) {
	return postWith(ctx, addr, key, "")
}

func postWith(ctx context.Context, addr, key, idempotencyKey string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/email/send", strings.NewReader(validBody))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-API-Key", key)
	if idempotencyKey != "" {
		request.Header.Set("Idempotency-Key", idempotencyKey)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func TestRun_AcceptsAndWakes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	_, key := newKey(t, d)
	addr, stop := running(t, environ(t, d.URL))
	dispatcher := pq.NewListener(d.URL, time.Second, time.Second, nil)
	defer func() { _ = dispatcher.Close() }()
	if err := dispatcher.Listen(lane.Channel); err != nil {
		t.Fatal(err)
	}
	status, body, err := post(t.Context(), addr, key)
	if err != nil || status != http.StatusAccepted {
		t.Fatalf("%d %s %v", status, body, err)
	}
	select {
	case <-dispatcher.Notify:
	case <-time.After(3 * time.Minute):
		t.Error("the api has notified no dispatcher")
	}
	if err := command().Run(t.Context(), []string{"-healthcheck"}, []string{"API_ADDR=" + addr}, io.Discard); err != nil {
		t.Errorf("healthcheck: %v", err)
	}
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := command().Run(t.Context(), []string{"-healthcheck"}, []string{"API_ADDR=" + addr}, io.Discard); err == nil {
		t.Error("the healthcheck of a stopped api succeeds")
	}
}

func TestRun_SeparateMetricsListener(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	log, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- command().Run(ctx, nil, environ(t, d.URL, "METRICS_ADDR=127.0.0.1:0"), out) }()
	response, err := http.Get("http://" + listening(t, log, "metrics") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(text), "go_goroutines") {
		t.Errorf("%s %v", response.Status, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestRun_FinishesRequestsInProgress: a request whose commit is delayed during the shutdown is
// answered before the program ends.
func TestRun_FinishesRequestsInProgress(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	_, key := newKey(t, d)
	addr, stop := running(t, environ(t, d.URL))
	lock, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.ExecContext(t.Context(), `LOCK TABLE email_outbox IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	type result struct {
		status int
		err    error
	}
	answered := make(chan result, 1)
	go func() {
		status, _, err := post(context.WithoutCancel(t.Context()), addr, key)
		answered <- result{status, err}
	}()
	waittest.Until(t, "the insert waits for a lock", func() bool {
		var waiting bool
		err := d.SQL.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database b ON b.oid = l.database
			WHERE b.datname = current_database() AND NOT l.granted)`).Scan(&waiting)
		return err == nil && waiting
	})
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	waittest.Until(t, "new connections are refused", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil // no new connections
	})
	select {
	case err := <-stopped:
		t.Fatalf("the api stopped before its request was answered: %v", err)
	default:
	}
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	if r := <-answered; r.status != http.StatusAccepted || r.err != nil {
		t.Errorf("the request in progress got %+v", r)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// An api that starts while Postgres is unreachable listens, reports why it is not ready, accepts
// nothing, and works once Postgres is available.
func TestRun_StartsWithoutPostgres(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	_, key := newKey(t, d)
	postgres := storetest.NewProxy(t, d)
	postgres.Stop()
	addr, stop := running(t, environ(t, postgres.URL))
	ready := func() (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/readyz", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		return answered(t, request)
	}
	if status, body := ready(); status != http.StatusServiceUnavailable || !strings.Contains(body, `"disconnected"`) {
		t.Errorf("/readyz without Postgres: %d %s", status, body)
	}
	if status, body, err := post(t.Context(), addr, key); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("an email without Postgres: %d %s %v", status, body, err)
	}
	postgres.Restart()
	waittest.Until(t, "the api is ready", func() bool { status, _ := ready(); return status == http.StatusOK })
	if status, body, err := post(t.Context(), addr, key); err != nil || status != http.StatusAccepted {
		t.Errorf("an email with Postgres: %d %s %v", status, body, err)
	}
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestRun_RefusesToStart(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]struct {
		environ []string
		words   []string
	}{
		"nothing set":  {nil, []string{"DATABASE_URL", "CPF_CNPJ_KEYS"}},
		"no database":  {environ(t, strings.Replace(os.Getenv("DATABASE_URL"), "/gateway?", "/none?", 1)), []string{"ping database", "none"}},
		"port in use":  {environ(t, os.Getenv("DATABASE_URL"), "API_ADDR=192.0.2.1:1"), []string{"start http", "192.0.2.1"}},
		"a wrong flag": {nil, nil},
	} {
		args := []string{}
		if name == "a wrong flag" {
			args = []string{"-x"}
		}
		err := command().Run(t.Context(), args, s.environ, io.Discard)
		if err == nil {
			t.Errorf("%s: run succeeded, want an error", name)
			continue
		}
		for _, word := range s.words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: error %q does not mention %s", name, err, word)
			}
		}
	}
}
