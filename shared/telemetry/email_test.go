package telemetry_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/telemetry"
)

// contextOf decodes the only line's context, without its duration.
func contextOf(t *testing.T, log *bytes.Buffer) map[string]any {
	t.Helper()
	var line struct {
		Context map[string]any `json:"context"`
	}
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatalf("%v in %s", err, log)
	}
	if _, ok := line.Context["durationMs"].(float64); !ok {
		t.Errorf("durationMs is missing in %s", log)
	}
	if n := strings.Count(log.String(), `"state"`); n != 1 {
		t.Errorf("the state is in the line %d times: %s", n, log)
	}
	delete(line.Context, "durationMs")
	return line.Context
}

// Each line about an email has its fields, masked, with its state at that time.
func TestEmailLogger(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	state := "RECEIVED"
	logger := telemetry.EmailLogger(telemetry.NewLogger(&log, "email-gateway-worker", "test", "info"), telemetry.Email{
		OutboxID: "o", RequestID: "r", CompanyID: "c", MailingID: "m", Attempt: 2,
		State: func() string { return state }, Since: time.Now(),
		Recipient: email.JobRecipient{Email: "ana@example.com", CPFCNPJHash: strings.Repeat("0a", 32), Nome: "Ana"},
	})
	want := map[string]any{
		"outboxId": "o", "requestId": "r", "companyId": "c", "mailingId": "m", "attempt": 2.0, "state": "VALIDATED", "why": "x",
		"recipient": map[string]any{"email": "a***@e***.com", "cpfCnpjHash": "0a0a0a0a..."},
	}
	state = "VALIDATED"
	logger.With("why", "x").Info("one")
	if diff := cmp.Diff(want, contextOf(t, &log)); diff != "" {
		t.Error(diff)
	}
	log.Reset()
	want["state"] = "SENT"
	logger.With("why", "x").Info("two", telemetry.State, email.Sent)
	if diff := cmp.Diff(want, contextOf(t, &log)); diff != "" {
		t.Error(diff)
	}
}

// For a broken payload the line has the parsable fields, and nothing that could contain anything.
func TestEmailOf_Broken(t *testing.T) {
	t.Parallel()
	id, company := uuid.NewString(), uuid.NewString()
	for payload, want := range map[string]telemetry.Email{
		`no JSON`: {OutboxID: id},
		`{"companyId":"` + company + `","requestId":"req-1","attempt":"two","subject":"secret"}`: {OutboxID: id, CompanyID: company, RequestID: "req-1"},
		`{"companyId":"ana@example.com","requestId":"ana@example.com","attempt":3}`:              {OutboxID: id, RequestID: "a***@e***.com", Attempt: 3},
		`{"htmlRef":"mailing:` + company + `","recipient":{"cpfCnpjHash":"11144477735"}}`:        {OutboxID: id, MailingID: company},
	} {
		got := telemetry.EmailOf(id, []byte(payload))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", payload, diff)
		}
	}
}

func TestIDs(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	logger.Info("x", telemetry.OutboxID, telemetry.IDs(1, func(int) string { return "a" }))
	logger.Info("x", telemetry.OutboxID, telemetry.IDs(500, func(int) string { return "b" }))
	if got := log.String(); !strings.Contains(got, `"outboxId":"a"`) || strings.Count(got, `"b"`) != 100 {
		t.Error(got)
	}
}
