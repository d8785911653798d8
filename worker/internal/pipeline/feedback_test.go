package pipeline_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/sesevent"
	"email-gateway/shared/store/feedback"
	"email-gateway/shared/store/outbox"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/provider"
)

// An email is counted as sent once: by the worker, or by the program that records the event of SES that confirms it.
func TestMetrics_Confirmed(t *testing.T) {
	t.Parallel()
	unknown := &provider.Failure{Outcome: provider.Unknown, Code: "SES_TIMEOUT", Category: provider.TimeoutError}
	for name, tt := range map[string]struct {
		failure *provider.Failure
		during  bool // the event comes before the worker's result
		lost    bool // the answer to the worker's result
		before  email.Status
		failed  float64
	}{
		"before the result":           {during: true, before: email.Sent},
		"after the result":            {before: email.Sent},
		"the result's answer is lost": {lost: true, before: email.Sent},
		"before the unknown outcome":  {failure: unknown, during: true, before: email.Sent},
		"after the unknown outcome":   {failure: unknown, before: email.OutcomeUnknown},
		"after an unreadable answer": {
			failure: &provider.Failure{Outcome: provider.Unreadable, Code: "SES_RESPONSE_UNREADABLE", Category: provider.PermanentError},
			before:  email.Failed, failed: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry, tries := prometheus.NewRegistry(), 0
			metrics := pipeline.NewMetrics(registry)
			b := newBench(t, func(p *pipeline.Params) {
				p.Metrics, p.FeedbackWindow = metrics, time.Hour
				p.Advancer = &interrupted{p.Advancer, func(tr outbox.Transition) (before, after bool) {
					if tr.Guard == outbox.GuardAttempt {
						tries++
					}
					return false, tt.lost && tries == 1
				}}
			})
			recorder, err := sesevent.NewRecorder(slog.New(slog.DiscardHandler), b.Store, metrics.Steps(), prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			id := b.Accept(t, b.company, nil)
			confirm := func() {
				var attempt uuid.UUID
				if err := b.SQL.QueryRowContext(t.Context(), `SELECT claim_token FROM email_outbox WHERE id = $1`, id).Scan(&attempt); err != nil {
					t.Error(err)
				}
				for _, kind := range []string{"Send", "Delivery"} {
					result, err := recorder.Record(t.Context(), feedback.Feedback{
						NotificationID: uuid.NewString(), Kind: kind, SESMessageID: "ses-1", OutboxID: id, AttemptID: attempt, CompanyID: b.company, OccurredAt: time.Now(),
					}, time.Now())
					if result != sesevent.Applied || err != nil {
						t.Errorf("%s: %s, %v", kind, result, err)
					}
				}
			}
			if tt.failure != nil {
				b.sender.fail(1, *tt.failure)
			}
			if tt.during {
				b.sender.during = confirm
			}
			_ = b.handle(t, id)
			if got := b.find(t, id).Status; got != tt.before {
				t.Errorf("status %s after the result, want %s", got, tt.before)
			}
			if !tt.during {
				confirm()
			}
			if got := b.find(t, id).Status; got != email.Sent {
				t.Errorf("status %s", got)
			}
			for _, series := range [][2]string{
				{"pipeline_final_state_total", "SENT"}, {"pipeline_state_transitions_total", "SENT"}, {"mailing_emails_total", "sent"},
			} {
				if got := counted(t, registry, series[0], series[1]); got != 1 {
					t.Errorf("%s %s is %v, want 1", series[0], series[1], got)
				}
			}
			if got := counted(t, registry, "pipeline_final_state_total", "FAILED"); got != tt.failed {
				t.Errorf("%v emails failed, want %v", got, tt.failed)
			}
		})
	}
}
