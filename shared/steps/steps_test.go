package steps_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"email-gateway/shared/email"
	"email-gateway/shared/steps"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/telemetry"
)

// answers is an Advancer with a fixed result.
type answers struct {
	done outbox.Advanced
	err  error
}

func (a answers) Advance(context.Context, outbox.Transition) (outbox.Advanced, error) {
	return a.done, a.err
}

// Only applied transitions are counted, and only final ones as final.
func TestWatch(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	counter := steps.New(registry, "QUOTA_ERROR", "TIMEOUT_ERROR")
	expired := outbox.Transition{Status: email.Expired, Events: []email.Event{{Type: email.EventExpired}}}
	failed := outbox.Transition{Status: email.Failed, Events: []email.Event{{Type: email.EventOutcomeUnknown}, {Type: email.EventFailed}}}
	again := outbox.Transition{Status: email.RetryScheduled, Events: []email.Event{{Type: email.EventRetryScheduled, Metadata: map[string]any{"errorCategory": "TIMEOUT_ERROR"}}}}
	for _, step := range []struct {
		with answers
		t    outbox.Transition
	}{
		{answers{done: outbox.Advanced{Applied: true}}, expired},
		{answers{done: outbox.Advanced{Applied: true}}, failed},
		{answers{done: outbox.Advanced{Applied: true}}, again},
		{answers{}, failed},
		{answers{done: outbox.Advanced{Applied: true}, err: errors.New("lost")}, failed},
	} {
		done, err := counter.Watch(step.with, slog.New(slog.DiscardHandler)).Advance(t.Context(), step.t)
		if done != step.with.done || !errors.Is(err, step.with.err) {
			t.Errorf("answered %v, %v", done, err)
		}
	}
	want := `
# HELP mailing_emails_total Emails sent and failed.
# TYPE mailing_emails_total counter
mailing_emails_total{status="failed"} 1
mailing_emails_total{status="sent"} 0
# HELP pipeline_final_state_total Emails that reached a final status, by status.
# TYPE pipeline_final_state_total counter
pipeline_final_state_total{state="CANCELLED"} 0
pipeline_final_state_total{state="EXPIRED"} 1
pipeline_final_state_total{state="FAILED"} 1
pipeline_final_state_total{state="SENT"} 0
pipeline_final_state_total{state="SUPPRESSED"} 0
# HELP pipeline_state_transitions_total Email events written, by type.
# TYPE pipeline_state_transitions_total counter
pipeline_state_transitions_total{state="CANCELLED"} 0
pipeline_state_transitions_total{state="EXPIRED"} 1
pipeline_state_transitions_total{state="FAILED"} 1
pipeline_state_transitions_total{state="OUTCOME_UNKNOWN"} 1
pipeline_state_transitions_total{state="RECEIVED"} 0
pipeline_state_transitions_total{state="RELEASED"} 0
pipeline_state_transitions_total{state="REPLAYED"} 0
pipeline_state_transitions_total{state="RETRY_SCHEDULED"} 1
pipeline_state_transitions_total{state="SENT"} 0
pipeline_state_transitions_total{state="SENT_ATTEMPT"} 0
pipeline_state_transitions_total{state="SUPPRESSED"} 0
pipeline_state_transitions_total{state="VALIDATED"} 0
pipeline_state_transitions_total{state="VALIDATION_FAILED"} 0
# HELP pipeline_retry_total Attempts followed by a retry, by error category.
# TYPE pipeline_retry_total counter
pipeline_retry_total{category="QUOTA_ERROR"} 0
pipeline_retry_total{category="TIMEOUT_ERROR"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// The dispatcher's log has the id of a dead-lettered email too.
func TestWatch_Logs(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	id, company, mailing := uuid.New(), uuid.New(), uuid.New()
	done := outbox.Advanced{Applied: true, Attempts: 6, Throttles: 1, CompanyID: company, RequestID: "req-1", MailingID: mailing}
	watch := steps.New(prometheus.NewRegistry()).Watch(answers{done: done}, telemetry.NewLogger(&log, "email-gateway-dispatcher", "test", "info"))
	_, err := watch.Advance(t.Context(), outbox.Transition{ID: id, Status: email.Failed, ErrorCode: "OUTCOME_UNKNOWN", ErrorReason: "to ana@example.com"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"outboxId":"` + id.String(), `"companyId":"` + company.String(), `"mailingId":"` + mailing.String(), `"requestId":"req-1"`,
		`"attempt":5`, `"state":"FAILED"`, `"durationMs":`, `"code":"OUTCOME_UNKNOWN"`, `"level":"error"`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is missing in %s", want, log.String())
		}
	}
	if strings.Contains(log.String(), "ana@") {
		t.Error("an address in the log")
	}
	log.Reset()
	if _, err := watch.Advance(t.Context(), outbox.Transition{ID: id, Status: email.Cancelled}); err != nil || log.Len() > 0 {
		t.Errorf("a cancelled email of many: %s, %v", log.String(), err)
	}
}
