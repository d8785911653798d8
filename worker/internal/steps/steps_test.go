package steps_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/steps"
)

// answers is an Advancer that answers as it is told.
type answers struct {
	done store.Advanced
	err  error
}

func (a answers) Advance(context.Context, store.Transition) (store.Advanced, error) {
	return a.done, a.err
}

// Only what was written is counted, and only an end as an end.
func TestWatch(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	counter := steps.New(registry)
	expired := store.Transition{Status: email.Expired, Events: []email.Event{{Type: email.EventExpired}}}
	failed := store.Transition{Status: email.Failed, Events: []email.Event{{Type: email.EventOutcomeUnknown}, {Type: email.EventFailed}}}
	again := store.Transition{Status: email.RetryScheduled, Events: []email.Event{{Type: email.EventRetryScheduled, Metadata: map[string]any{"errorCategory": provider.TimeoutError}}}}
	for _, step := range []struct {
		with answers
		t    store.Transition
	}{
		{answers{done: store.Advanced{Applied: true}}, expired},
		{answers{done: store.Advanced{Applied: true}}, failed},
		{answers{done: store.Advanced{Applied: true}}, again},
		{answers{}, failed},
		{answers{done: store.Advanced{Applied: true}, err: errors.New("lost")}, failed},
	} {
		done, err := counter.Watch(step.with).Advance(t.Context(), step.t)
		if done != step.with.done || !errors.Is(err, step.with.err) {
			t.Errorf("answered %v, %v", done, err)
		}
	}
	want := `
# HELP mailing_emails_total Emails sent and failed.
# TYPE mailing_emails_total counter
mailing_emails_total{status="failed"} 1
mailing_emails_total{status="sent"} 0
# HELP pipeline_final_state_total Emails ended by worker and dispatcher, by final status.
# TYPE pipeline_final_state_total counter
pipeline_final_state_total{state="CANCELLED"} 0
pipeline_final_state_total{state="EXPIRED"} 1
pipeline_final_state_total{state="FAILED"} 1
pipeline_final_state_total{state="SENT"} 0
pipeline_final_state_total{state="SUPPRESSED"} 0
# HELP pipeline_state_transitions_total Events of emails written by worker and dispatcher, by type.
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
# HELP pipeline_retry_total Attempts that led to another, by the error's category.
# TYPE pipeline_retry_total counter
pipeline_retry_total{category="QUOTA_ERROR"} 0
pipeline_retry_total{category="TIMEOUT_ERROR"} 1
pipeline_retry_total{category="TRANSIENT_ERROR"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
