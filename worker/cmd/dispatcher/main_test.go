package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/logtest"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue/redistest"
)

// timeout is how long a test waits for something that should happen soon.
const timeout = 3 * time.Minute

func TestRun(t *testing.T) {
	t.Parallel()
	d, redis := storetest.New(t), redistest.Start(t)
	environ := []string{"DATABASE_URL=" + d.URL, "REDIS_URL=" + redis.URL, "ENVIRONMENT=test", "STORAGE_URL=file://" + t.TempDir()}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var logs logtest.Buffer
	ended := make(chan error, 1)
	go func() { ended <- command().Run(ctx, nil, append(environ, "DISPATCHER_ADDR=127.0.0.1:0"), &logs) }()

	var addr string
	waittest.Until(t, "listening", func() bool {
		addr = logs.Find(`"address":"([^"]+)"`)
		return addr != ""
	})
	if err := command().Run(t.Context(), []string{"-healthcheck"}, append(environ, "DISPATCHER_ADDR="+addr), io.Discard); err != nil {
		t.Errorf("healthcheck: %v", err)
	}
	waittest.Until(t, "ready", func() bool { code, _ := get(t, addr, "/readyz"); return code == http.StatusOK })
	if code, _ := get(t, addr, "/livez"); code != http.StatusOK {
		t.Errorf("/livez: %d", code)
	}

	company := d.Company(t)
	sent, overdue := d.Accept(t, company, nil), d.Accept(t, company, nil)
	if _, err := d.SQL.ExecContext(t.Context(), `UPDATE email_outbox SET expires_at = now() WHERE id = $1`, overdue); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[any]email.Status{sent: email.Enqueued, overdue: email.Expired} {
		waittest.Until(t, string(want), func() bool {
			var got email.Status
			if err := d.SQL.QueryRowContext(t.Context(), `SELECT status FROM email_outbox WHERE id = $1`, id).Scan(&got); err != nil {
				t.Fatal(err)
			}
			return got == want
		})
	}
	waittest.Until(t, "a row about the process", func() bool { return processes(t, d) == 1 })
	_, metrics := get(t, addr, "/metrics")
	for _, name := range []string{
		"mailing_outbox_pending_count", "mailing_outbox_publish_duration_seconds_count", "outbox_enqueued_total", "outbox_expired_total",
	} {
		if !strings.Contains(metrics, "\n"+name) {
			t.Errorf("/metrics does not show %s", name)
		}
	}

	redis.Stop()
	waittest.Until(t, "not ready without Redis", func() bool {
		code, body := get(t, addr, "/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, `"redis":{"status":"disconnected"}`)
	})
	if code, _ := get(t, addr, "/livez"); code != http.StatusOK {
		t.Errorf("/livez without Redis: %d", code)
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("run: %v", err)
		}
	case <-time.After(grace + timeout):
		t.Fatal("did not stop")
	}
	if n := processes(t, d); n != 0 {
		t.Errorf("%d status rows of the process remain", n)
	}
}

func TestRun_InvalidSettings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, url, want string }{
		{"REDIS_URL", "redis://127.0.0.1:6379/zero", "read Redis URL"},
		{"REDIS_URL", "", "REDIS_URL: must be set"},
		{"DATABASE_URL", strings.Replace(os.Getenv("DATABASE_URL"), "/gateway?", "/none?", 1), "ping database"},
	} {
		environ := []string{"DATABASE_URL=postgres://127.0.0.1:1/none", "REDIS_URL=redis://127.0.0.1:1", test.name + "=" + test.url}
		err := command().Run(t.Context(), nil, environ, io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s=%s: %v, want %q", test.name, test.url, err, test.want)
		}
	}
}

func processes(t *testing.T, d storetest.Database) (n int) {
	t.Helper()
	if err := d.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM process_status WHERE service = 'dispatcher'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func get(t *testing.T, addr, path string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
