package ctl_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"email-gateway/api/internal/ctl"
)

func oneEmail(to, subject string) string {
	return fmt.Sprintf(`{"to": %q, "subject": %q, "text": "Olá", "recipient": {"externalId": "1"}}`, to, subject)
}

// A file of more emails than a batch may have is sent as several, and repeated it sends nothing twice.
func TestEmailSendBatch(t *testing.T) {
	t.Parallel()
	tenant, _, d := newTenant(t)
	var lines []string
	for i := range 501 {
		lines = append(lines, oneEmail(fmt.Sprintf("p%d@example.com", i), "s"))
	}
	for name, content := range map[string]string{
		"jsonl": "\ufeff\n" + strings.Join(lines, "\n"),
		"json":  "[" + strings.Join(lines, ",\n") + "]\n",
	} {
		path := file(t, "emails."+name, content)
		for range 2 {
			made := tenant.object(t, "email", "send-batch", path, "--idempotency-key", name)
			emails, _ := made["emails"].([]any)
			if made["accepted"] != 501.0 || len(emails) != 501 {
				t.Fatalf("%s: %v accepted of %d", name, made["accepted"], len(emails))
			}
			if last, _ := emails[500].(map[string]any); last["index"] != 500.0 || last["outboxId"] == nil {
				t.Errorf("%s: %v", name, last)
			}
		}
	}
	if n := count(t, d, `SELECT count(*) FROM email_outbox`); n != 2*501 {
		t.Errorf("%d emails", n)
	}
	tenant.stdin = strings.Join(lines[:2], "\n")
	if text := tenant.must(t, "email", "send-batch", "-"); !strings.HasPrefix(text, "2 emails accepted, 0 duplicates, 0 rejected.\nTo follow them: gatewayctl email list --request-id ") {
		t.Error(text)
	}
}

func TestEmailSendBatch_Refused(t *testing.T) {
	t.Parallel()
	tenant, _, d := newTenant(t)
	var lines []string
	for i := range 503 {
		subject := "s"
		if i == 501 {
			subject = ""
		}
		lines = append(lines, oneEmail(fmt.Sprintf("p%d@example.com", i), subject))
	}
	path := file(t, "emails.jsonl", strings.Join(lines, "\n"))
	r := tenant.run(t, "email", "send-batch", path, "--idempotency-key", "k")
	for _, want := range []string{"emails[501].subject is required", "Before that, 500 emails were processed", "--idempotency-key k"} {
		if r.code != 1 || !strings.Contains(r.stderr, want) {
			t.Errorf("%d: %q lacks %q", r.code, r.stderr, want)
		}
	}
	if n := count(t, d, `SELECT count(*) FROM email_outbox`); n != 500 {
		t.Errorf("%d emails", n)
	}
	r = tenant.run(t, "email", "send-batch", path, "--partial")
	if r.code != 1 || !strings.Contains(r.stdout, "502 emails accepted, 0 duplicates, 1 rejected.\nemails[501] VALIDATION_FAILED: emails[501].subject is required\n") {
		t.Errorf("%d: %s %s", r.code, r.stdout, r.stderr)
	}
	for content, want := range map[string]string{
		"":                                      "has no email",
		"[]":                                    "has no email",
		"[" + lines[0]:                          "before the end of its array",
		"[" + lines[0] + "] x":                  "after the end",
		lines[0] + "\n{":                        "not valid JSON after email 1",
		`"` + strings.Repeat("x", 11<<20) + `"`: "larger than 10 MiB",
		"5":                                     "emails[0] must be an object, not a number",
	} {
		if r := tenant.run(t, "email", "send-batch", file(t, "x", content)); r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%.30q: %d %s, want %q", content, r.code, r.stderr, want)
		}
	}
}

// After a request that may have been processed, the command names the key with which it can be repeated, also if the key
// was generated, and not that nothing was changed.
func TestEmailSend_UnknownOutcome(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case requests.Add(1)%2 == 1: // the answer is lost
			conn, _, _ := http.NewResponseController(w).Hijack()
			_ = conn.Close()
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, `{"code": "BUSY", "detail": "busy", "requestId": %q}`, r.Header.Get("Idempotency-Key"))
		}
	}))
	t.Cleanup(api.Close)
	tenant := operator{env: map[string]string{"API_URL": api.URL, "API_KEY": "gw_test_a_b"}}
	for _, args := range [][]string{
		{"email", "send", "--to", "ana@example.com", "--subject", "s", "--text", "Olá", "--external-id", "1"},
		{"email", "send-batch", file(t, "emails.jsonl", oneEmail("ana@example.com", "s"))},
	} {
		got := tenant.run(t, args...)
		_, key, _ := strings.Cut(got.stderr, "[request ")
		key, _, _ = strings.Cut(key, "]")
		if got.code != ctl.ExitFailed || !strings.HasPrefix(key, "gatewayctl-") || !strings.Contains(got.stderr, "add --idempotency-key "+key+"\n") ||
			strings.Contains(strings.ToLower(got.stderr), "nothing was changed") {
			t.Errorf("%s: exit code %d\n%s", args[:2], got.code, got.stderr)
		}
	}
}
