package pipeline_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/queue"
)

// linesOf returns the log's lines that have the email's context, with message and level.
func linesOf(t *testing.T, log *bytes.Buffer) []map[string]any {
	t.Helper()
	var lines []map[string]any
	decoder := json.NewDecoder(log)
	for {
		var line struct {
			Message string         `json:"message"`
			Context map[string]any `json:"context"`
		}
		err := decoder.Decode(&line)
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		line.Context["message"] = line.Message
		lines = append(lines, line.Context)
	}
}

func logged(t *testing.T, changes ...func(*pipeline.Params)) (*bench, *bytes.Buffer, *prometheus.Registry) {
	t.Helper()
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	b := newBench(t, func(p *pipeline.Params) {
		p.Log = telemetry.NewLogger(&log, "email-gateway-worker", "test", "debug")
		p.Metrics = pipeline.NewMetrics(registry)
		for _, change := range changes {
			change(p)
		}
	})
	return b, &log, registry
}

// Each log line about an email has the fields of spec 004 and the masked recipient of spec 002.
func TestLog_EmailFields(t *testing.T) {
	t.Parallel()
	b, log, _ := logged(t)
	hash := strings.Repeat("0a", 32)
	accept := func() uuid.UUID {
		return b.Accept(t, b.company, func(e *outbox.NewEmail) { e.Job.Recipient.CPFCNPJHash = hash })
	}
	sent, failed, retried, refused := accept(), accept(), accept(), accept()
	_ = b.handle(t, sent)
	_ = b.handle(t, sent) // logs ALREADY_SENT
	b.sender.fail(1, provider.Failure{Outcome: provider.Failed, Code: "X", Category: provider.PermanentError})
	_ = b.handle(t, failed)
	b.sender.fail(1, provider.Failure{Outcome: provider.Retry, Code: "X", Category: provider.TransientError})
	_ = b.handle(t, retried)
	b.exec(t, `UPDATE email_outbox SET html = '' WHERE id = $1`, refused)
	_ = b.handle(t, refused)

	lines := linesOf(t, log)
	states := map[string]string{}
	for _, line := range lines {
		for _, field := range []string{"outboxId", "requestId", "companyId", "attempt", "state", "durationMs"} {
			if line[field] == nil {
				t.Errorf("%s is missing in %v", field, line)
			}
		}
		recipient, _ := line["recipient"].(map[string]any)
		if recipient["cpfCnpjHash"] != "0a0a0a0a..." || recipient["email"] != "a***@e***.com" {
			t.Errorf("recipient of %v", line)
		}
		id, _ := line["outboxId"].(string)
		state, _ := line["state"].(string)
		states[id] += state + " "
	}
	for id, want := range map[uuid.UUID]string{sent: "SENT SENT ", failed: "FAILED ", retried: "RETRY_SCHEDULED ", refused: "FAILED "} {
		if states[id.String()] != want {
			t.Errorf("states %q, want %q", states[id.String()], want)
		}
	}
	if again := lines[1]; again["status"] != "ALREADY_SENT" || again["sesMessageId"] != "ses-1" {
		t.Errorf("a second task of a sent email: %v", again)
	}
}

// noIDs is a loader that cannot read the provider's message ids.
type noIDs struct{ pipeline.Loader }

func (noIDs) SESMessageID(context.Context, uuid.UUID) (string, error) {
	return "", store.ErrUnavailable
}

// A second task of a sent email is acknowledged and logged also if the message id cannot be read.
func TestLog_AlreadySentWithoutID(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	b := newBench(t, func(p *pipeline.Params) {
		p.Log, p.Loader = telemetry.NewLogger(&log, "email-gateway-worker", "test", "debug"), noIDs{p.Loader}
	})
	id := b.Accept(t, b.company, nil)
	_ = b.handle(t, id)
	if err := b.handle(t, id); err != nil {
		t.Error(err)
	}
	lines := linesOf(t, &log)
	if again := lines[len(lines)-1]; again["status"] != "ALREADY_SENT" || again["outboxId"] != id.String() || again["error"] == nil {
		t.Errorf("%v", again)
	}
}

// A task without an email is logged with the task's id.
func TestLog_DeadLetteredTask(t *testing.T) {
	t.Parallel()
	b, log, _ := logged(t)
	id := uuid.NewString()
	if err := b.pipeline.Handle(t.Context(), queue.Task{ID: id, Queue: email.QueueNormal, Payload: []byte(`{"outboxId":"` + id + `","requestId":"req-9","unknown":1}`)}); err != nil {
		t.Fatal(err)
	}
	lines := linesOf(t, log)
	if len(lines) != 1 || lines[0]["outboxId"] != id || lines[0]["requestId"] != "req-9" || lines[0]["durationMs"] == nil {
		t.Errorf("%v", lines)
	}
}

// The payload's attempt must not exceed EMAIL_MAX_ATTEMPTS.
func TestHandle_AttemptNumberLimit(t *testing.T) {
	t.Parallel()
	for attempt, want := range map[int]email.Status{5: email.Sent, 6: email.Failed, 100: email.Failed, 0: email.Failed} {
		b := newBench(t, nil)
		id := b.Accept(t, b.company, nil)
		task := b.task(t, id)
		var job map[string]any
		if err := json.Unmarshal(task.Payload, &job); err != nil {
			t.Fatal(err)
		}
		job["attempt"] = attempt
		task.Payload, _ = json.Marshal(job)
		_ = b.pipeline.Handle(t.Context(), task)
		if got := b.find(t, id); got.Status != want || want == email.Failed && *got.ErrorCode != email.CodeInvalidPayload {
			t.Errorf("attempt %d: %+v, want %s", attempt, got, want)
		}
	}
}

// Each state that an email reached is timed, and no other.
func TestMetrics_StateDurations(t *testing.T) {
	t.Parallel()
	b, _, registry := logged(t)
	_ = b.handle(t, b.Accept(t, b.company, nil))
	_ = b.handle(t, b.Accept(t, b.company, func(e *outbox.NewEmail) { e.HTML = "" }))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, f := range families {
		if f.GetName() == "pipeline_processing_duration_seconds" {
			for _, m := range f.GetMetric() {
				got[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
			}
		}
	}
	for state, want := range map[string]uint64{"RECEIVED": 2, "VALIDATED": 1, "VALIDATION_FAILED": 1, "SENT_ATTEMPT": 1, "SENT": 1, "FAILED": 1} {
		if got[state] != want {
			t.Errorf("%s is timed %d times, want %d", state, got[state], want)
		}
	}
}
