package httpapi_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/store/tenant"
	"email-gateway/shared/waittest"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	status := func(service, instance, details string, age string) {
		t.Helper()
		g.Run(t, `INSERT INTO process_status (service, instance, started_at, updated_at, details) VALUES ($1, $2, now(), now() - $4::interval, $3)
			ON CONFLICT (service, instance) DO UPDATE SET updated_at = excluded.updated_at, details = excluded.details`, service, instance, details, age)
	}
	expect := func(want map[string]string) {
		t.Helper()
		r := g.do(t, call{Path: "/health", NoKey: true})
		answer := r.json(t)
		if r.Status != http.StatusOK {
			t.Errorf("%d %s", r.Status, r.Body)
		}
		for part, status := range want {
			got := answer[part]
			if values, ok := got.(map[string]any); ok {
				got = values["status"]
			}
			if got != status {
				t.Errorf("%s is %v, want %s: %s", part, got, status, r.Body)
			}
		}
	}
	expect(map[string]string{
		"status": "degraded", "database": "connected", "redis": "unknown", "rabbitmq": "unknown", "ses": "unknown",
		"storage": "accessible", "tokenManager": "initialized", "dispatcher": "unknown", "worker": "unknown",
	})

	const fine = `{"redis":{"status":"connected"},"rabbitmq":{"status":"connected"},"consumers":2,"ses":{"status":"connected"},"concurrency":10}`
	status("worker", "w1", fine, "1 s")
	expect(map[string]string{"status": "degraded", "redis": "connected", "worker": "running", "dispatcher": "unknown"})
	status("worker", "w2", fine, "2 s")
	status("dispatcher", "d1", `{"redis":{"status":"connected"}}`, "0 s") // without RABBITMQ_URL it starts no mailing
	expect(map[string]string{"status": "degraded", "rabbitmq": "disconnected"})
	status("dispatcher", "d2", `{"redis":{"status":"connected"},"rabbitmq":{"status":"connected"}}`, "0 s")
	expect(map[string]string{"status": "ok", "redis": "connected", "rabbitmq": "connected", "ses": "connected", "worker": "running", "dispatcher": "running"})
	rabbit, _ := g.do(t, call{Path: "/health", NoKey: true}).json(t)["rabbitmq"].(map[string]any)
	if rabbit["consumers"] != 4.0 {
		t.Errorf("%v", rabbit)
	}
	status("dispatcher", "d1", `{"redis":{"status":"disconnected"}}`, "0 s")
	expect(map[string]string{"status": "degraded", "redis": "disconnected", "ses": "connected"})
	status("dispatcher", "d1", `{"redis":{"status":"connected"},"storage":{"status":"disconnected"}}`, "0 s")
	expect(map[string]string{"status": "degraded", "redis": "connected", "storage": "inaccessible"})
	status("dispatcher", "d1", `{"redis":{"status":"connected"},"storage":{"status":"connected"}}`, "0 s")
	expect(map[string]string{"status": "ok", "storage": "accessible"})
	status("dispatcher", "d1", `{"redis":{"status":"connected"}}`, "16 s")
	status("dispatcher", "d2", `{"redis":{"status":"connected"}}`, "16 s")
	expect(map[string]string{"status": "degraded", "redis": "connected", "dispatcher": "unknown"})
	status("worker", "w1", `{"ses":{"status":"parked"}}`, "1 s")
	status("dispatcher", "d1", `"odd"`, "1 s")
	expect(map[string]string{"status": "degraded", "ses": "parked", "dispatcher": "unknown"})
}

// The api is ready while Postgres answers, whatever else is down.
func TestReady(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	g.Run(t, `INSERT INTO process_status (service, instance, started_at, details)
		VALUES ('worker', 'w', now(), '{"redis":{"status":"disconnected"},"ses":{"status":"disconnected"}}')`)
	if r := g.do(t, call{Path: "/readyz", NoKey: true}); r.Status != http.StatusOK || r.Body != `{"status":"ok","database":{"status":"connected"}}` {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

// The state of the circuit breaker takes precedence over the reachability of SES.
func TestHealth_OpenBreaker(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	g.Run(t, `INSERT INTO process_status (service, instance, started_at, details) SELECT s, s, now(),
		'{"redis":{"status":"connected"},"rabbitmq":{"status":"connected"},"ses":{"status":"connected"}}' FROM unnest('{dispatcher,worker}'::text[]) s`)
	for _, tt := range []struct{ change, health, ses, reason string }{
		{`SELECT 1`, "ok", "connected", ""},
		{`UPDATE provider_gate SET state = 'shut', reason = 'SES_ACCOUNT_SENDING_PAUSED', since = '2026-11-21T10:00:00Z'`, "degraded", "parked", "SES_ACCOUNT_SENDING_PAUSED"},
		{`UPDATE provider_gate SET held_at = '2026-11-21T10:00:00Z', held_reason = 'a secret of ours'`, "degraded", "paused", "HELD_BY_OPERATOR"},
		{`UPDATE provider_gate SET held_at = NULL, held_reason = NULL, state = 'open', reason = NULL`, "ok", "connected", ""},
	} {
		g.Run(t, tt.change)
		r := g.do(t, call{Path: "/health", NoKey: true})
		ses, _ := r.json(t)["ses"].(map[string]any)
		reason, _ := ses["reason"].(string)
		if r.json(t)["status"] != tt.health || ses["status"] != tt.ses || reason != tt.reason || (reason != "") != (ses["since"] == "2026-11-21T10:00:00Z") {
			t.Errorf("after %s: %s", tt.change, r.Body)
		}
	}
}

func TestHealth_WithoutRabbitMQ(t *testing.T) {
	t.Parallel()
	g := start(t, func(p *httpapi.Params) { p.HasRabbitMQ = false })
	g.Run(t, `INSERT INTO process_status (service, instance, started_at, details) SELECT s, s, now(),
		'{"redis":{"status":"connected"},"rabbitmq":{"status":"disconnected"},"ses":{"status":"connected"}}' FROM unnest('{dispatcher,worker}'::text[]) s`)
	r := g.do(t, call{Path: "/health", NoKey: true})
	rabbit, _ := r.json(t)["rabbitmq"].(map[string]any)
	storage, _ := r.json(t)["storage"].(map[string]any)
	tokens, _ := r.json(t)["tokenManager"].(map[string]any)
	// Emails with attachments use the storage too.
	if r.json(t)["status"] != "ok" || rabbit["status"] != "disabled" || storage["status"] != "accessible" || tokens["status"] != "disabled" {
		t.Errorf("%s", r.Body)
	}
}

func TestHealth_WithoutStorage(t *testing.T) {
	t.Parallel()
	for name, rabbitMQ := range map[string]bool{"with RabbitMQ": true, "without RabbitMQ": false} {
		g := start(t, func(p *httpapi.Params) { p.Bucket, p.HasRabbitMQ = brokenBucket{p.Bucket}, rabbitMQ })
		for range 2 { // checked, then cached
			r := g.do(t, call{Path: "/health", NoKey: true})
			storage, _ := r.json(t)["storage"].(map[string]any)
			if r.Status != http.StatusOK || r.json(t)["status"] != "degraded" || storage["status"] != "inaccessible" {
				t.Errorf("%s: %d %s", name, r.Status, r.Body)
			}
		}
	}
	g := start(t, func(p *httpapi.Params) { p.HasRabbitMQ = false })
	g.Run(t, `INSERT INTO process_status (service, instance, started_at, details) VALUES ('worker', 'w1', now(), '{"storage":{"status":"disconnected"}}')`)
	r := g.do(t, call{Path: "/health", NoKey: true})
	if storage, _ := r.json(t)["storage"].(map[string]any); storage["status"] != "inaccessible" {
		t.Errorf("a worker does not reach the storage: %s", r.Body)
	}
}

func TestUnknownRoutes(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for _, c := range []call{
		{Path: "/"},
		{Path: "/v1"},
		{Path: "/v1/emails/"},
		{Path: "/v2/email/send"},
		{Path: "/v1/email/x/y"},
		{Method: http.MethodPost, Path: "/v1/batch"},
		{Path: "/v1/ana@example.com?x=eva@example.com"},
	} {
		if r := g.do(t, c); r.Status != http.StatusNotFound || r.problem(t).Code != "NOT_FOUND" {
			t.Errorf("%s: %d %s", c.Path, r.Status, r.Body)
		}
	}
	for _, c := range []call{
		{Method: http.MethodDelete, Path: "/v1/emails"},
		{Method: http.MethodPost, Path: "/health"},
		{Method: http.MethodPut, Path: "/v1/email/send"},
		{Method: http.MethodGet, Path: "/v1/email/send"},
		{Method: http.MethodPatch, Path: "/v1/email/send"},
		{Method: http.MethodGet, Path: "/v1/recipients"},
		{Method: "BREW", Path: "/v1/emails"},
	} {
		r := g.do(t, c)
		allowed := r.Header.Get("Allow")
		if p := r.problem(t); r.Status != http.StatusMethodNotAllowed || p.Code != "METHOD_NOT_ALLOWED" || allowed == "" ||
			p.Detail != fmt.Sprintf("the path does not support %s, only %s", c.Method, allowed) {
			t.Errorf("%s %s: %d %v %s", c.Method, c.Path, r.Status, r.Header, r.Body)
		}
		if strings.HasSuffix(c.Path, "/send") && allowed != http.MethodPost {
			t.Errorf("%s %s: the header Allow is %s", c.Method, c.Path, allowed)
		}
	}
	if strings.Contains(g.Log.String(), "example.com") {
		t.Errorf("the log holds an address: %s", g.Log.String())
	}
	metrics := g.metrics(t)
	if strings.Contains(metrics, "BREW") || strings.Contains(metrics, "example.com") {
		t.Error("a metric has a label value chosen by a client")
	}
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	var r reply
	// Each second adds a request: only requests within one second show the whole limit.
	waittest.Until(t, "four requests are handled within a second", func() bool {
		started := time.Now()
		slow := g.newKey(t, g.Company, func(k *tenant.APIKey) { k.RatePerSecond, k.Burst = 1, 3 }).String()
		var first [3]reply
		for i := range first {
			first[i] = g.do(t, call{Path: "/v1/emails", Key: slow})
		}
		r = g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(nil), Key: slow})
		if time.Since(started) >= time.Second {
			return false
		}
		for i, r := range first {
			if r.Status != http.StatusOK || r.Header.Get("RateLimit-Limit") != "3" || r.Header.Get("RateLimit-Remaining") != strconv.Itoa(2-i) {
				t.Errorf("request %d: %d %v", i, r.Status, r.Header)
			}
		}
		return true
	})
	if r.Status != http.StatusTooManyRequests || r.problem(t).Code != "RATE_LIMITED" || r.Header.Get("Retry-After") != "1" ||
		r.Header.Get("RateLimit-Remaining") != "0" || r.Header.Get("RateLimit-Reset") != "3" {
		t.Errorf("%d %v %s", r.Status, r.Header, r.Body)
	}
	r = g.do(t, call{Path: "/v1/emails"})
	if r.Status != http.StatusOK || r.Header.Get("RateLimit-Limit") != "" {
		t.Errorf("a key without limit: %d %v", r.Status, r.Header)
	}
}
