package email

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/ctl/goldentest"
	"email-gateway/shared/email"
	"email-gateway/shared/store/emails"
)

// timelineOf returns events as the worker writes them; times are seconds after acceptance.
func timelineOf(events ...any) []emails.TimelineEvent {
	var all []emails.TimelineEvent
	for i := 0; i < len(events); i += 3 {
		metadata := "{}"
		if events[i+2] != nil {
			metadata = events[i+2].(string)
		}
		all = append(all, emails.TimelineEvent{
			Seq: len(all) + 1, Type: events[i+1].(email.EventType), Metadata: []byte(metadata),
			CreatedAt: ago(2 * time.Minute).Add(time.Duration(events[i].(float64) * float64(time.Second))),
		})
	}
	return all
}

func TestEmailShow_InText(t *testing.T) {
	t.Parallel()
	details := func(s *emails.Diagnosis) {
		s.Recipient, s.Subject, s.RequestID = "ana@example.com", "Sua fatura está disponível", "req-1"
		s.CompanyID = uuid.MustParse("01990000-0000-7000-8000-000000000001")
	}
	attempt := `{"attempt":1,"attemptId":"5b1c4a34-3f0e-4c55-9d1e-7d3f0a9f5f10"}`
	tests := []struct {
		name   string
		status email.Status
		change func(*emails.Diagnosis)
		events []emails.TimelineEvent
		reveal bool
	}{
		{name: "accepted a moment ago", status: email.Pending},
		{
			name: "sent, perhaps twice", status: email.Sent,
			change: func(s *emails.Diagnosis) {
				s.Attempts, s.Throttles, s.PossibleDuplicate, s.OutcomeUnknown = 3, 1, true, true
				s.ExternalID, s.Tags = to("CUST-1"), []string{"invoice", "november"}
				s.Delivery, s.MailingID = to(email.DeliveryPending), to(uuid.MustParse("01990000-0000-7000-8000-000000000002"))
			},
			events: timelineOf(
				0.004, email.EventReceived, `{"attempt":1,"jobId":"01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b"}`,
				0.005, email.EventValidated, `{"validations":["INTEGRITY","OUTBOX","RECIPIENT","TEMPLATE"]}`,
				0.005, email.EventSentAttempt, attempt,
				0.105, email.EventRetryScheduled, `{"errorCode":"SES_THROTTLING","errorCategory":"QUOTA_ERROR","errorMessage":"Maximum sending rate exceeded.","originalCode":"TooManyRequestsException","willRetry":true,"nextAttemptNumber":1,"backoffDelay":1043}`,
				1.2, email.EventReceived, `{"attempt":1}`,
				1.2, email.EventValidated, nil,
				1.2, email.EventSentAttempt, attempt,
				31.2, email.EventOutcomeUnknown, `{"errorCode":"NETWORK_ERROR","errorCategory":"TRANSIENT_ERROR","errorMessage":"read tcp: connection reset by peer","willRetry":true}`,
				31.2, email.EventRetryScheduled, `{"errorCode":"NETWORK_ERROR","errorCategory":"TRANSIENT_ERROR","errorMessage":"read tcp: connection reset by peer","willRetry":true,"nextAttemptNumber":2,"backoffDelay":5400}`,
				36.7, email.EventReceived, `{"attempt":2}`,
				36.7, email.EventValidated, nil,
				36.7, email.EventSentAttempt, `{"attempt":2,"attemptId":"9a0f5f10-3f0e-4c55-9d1e-7d3f5b1c4a34"}`,
				36.79, email.EventSent, `{"sesMessageId":"0100018c-ses","durationMs":88,"attempt":2}`,
			),
		},
		{
			name: "failed, masked", status: email.Failed,
			change: func(s *emails.Diagnosis) {
				s.Subject, s.ExternalID, s.Tags = "Confirme ana@example.com", to("ana@example.com"), []string{"to:ana@example.com"}
			},
			events: timelineOf(
				0.004, email.EventReceived, `{"attempt":1}`,
				0.005, email.EventValidationFailed, `{"validation":"RECIPIENT","errorCode":"RECIPIENT_NOT_FOUND","errorMessage":"ana@example.com is not known"}`,
				0.005, email.EventFailed, `{"errorCode":"RECIPIENT_NOT_FOUND","errorCategory":"VALIDATION_ERROR","errorMessage":"ana@example.com is not known","willRetry":false}`,
			),
		},
		{
			name: "failed, revealed", status: email.Failed, reveal: true,
			change: func(s *emails.Diagnosis) { s.OutcomeUnknown = true },
			events: timelineOf(
				0.004, email.EventReceived, nil,
				0.004, email.EventValidated, nil,
				0.004, email.EventSentAttempt, attempt,
				0.2, email.EventFailed, `{"errorCode":"SES_REJECTED","errorCategory":"PERMANENT_ERROR","errorMessage":"Email address is not verified: ana@example.com","outcomeUnknown":true,"unheardOf":[1,{"to":"ana@example.com"}]}`,
			),
		},
		{
			name: "waiting for a retry", status: email.RetryScheduled,
			events: timelineOf(
				0.004, email.EventReceived, nil,
				0.004, email.EventValidated, nil,
				0.004, email.EventSentAttempt, attempt,
				0.2, email.EventReleased, `{"reason":"the lease is too short for the call"}`,
				5.1, email.EventReceived, nil,
			),
		},
	}
	var all strings.Builder
	for _, tt := range tests {
		s := unblockedEmail(tt.status)
		details(&s)
		if tt.change != nil {
			tt.change(&s)
		}
		view, err := viewEmail(s, tt.events, email.MaxAttempts, tt.reveal)
		if err != nil {
			t.Fatal(err)
		}
		text := textOf(view)
		if strings.Contains(text, "ana@example.com") != tt.reveal {
			t.Errorf("%s: in clear %v, want %v:\n%s", tt.name, !tt.reveal, tt.reveal, text)
		}
		all.WriteString("## " + tt.name + "\n" + text + "\n")
	}
	goldentest.Compare(t, "email_show", all.String())
}
