package ctl_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/api/internal/ctl"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// timeline returns events as the worker writes them; times are seconds after acceptance.
func timeline(events ...any) []store.TimelineEvent {
	var all []store.TimelineEvent
	for i := 0; i < len(events); i += 3 {
		metadata := "{}"
		if events[i+2] != nil {
			metadata = events[i+2].(string)
		}
		all = append(all, store.TimelineEvent{
			Seq: len(all) + 1, Type: events[i+1].(email.EventType), Metadata: []byte(metadata),
			CreatedAt: ago(2 * time.Minute).Add(time.Duration(events[i].(float64) * float64(time.Second))),
		})
	}
	return all
}

func TestEmailShow_InText(t *testing.T) {
	t.Parallel()
	details := func(s *store.EmailDiagnosis) {
		s.Recipient, s.Subject, s.RequestID = "ana@example.com", "Sua fatura está disponível", "req-1"
		s.CompanyID = uuid.MustParse("01990000-0000-7000-8000-000000000001")
	}
	attempt := `{"attempt":1,"attemptId":"5b1c4a34-3f0e-4c55-9d1e-7d3f0a9f5f10"}`
	tests := []struct {
		name   string
		status email.Status
		change func(*store.EmailDiagnosis)
		events []store.TimelineEvent
		reveal bool
	}{
		{name: "accepted a moment ago", status: email.Pending},
		{
			name: "sent, perhaps twice", status: email.Sent,
			change: func(s *store.EmailDiagnosis) {
				s.Attempts, s.Throttles, s.PossibleDuplicate, s.OutcomeUnknown = 3, 1, true, true
				s.ExternalID, s.Tags = to("CUST-1"), []string{"invoice", "november"}
			},
			events: timeline(
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
			change: func(s *store.EmailDiagnosis) {
				s.Subject, s.ExternalID, s.Tags = "Confirme ana@example.com", to("ana@example.com"), []string{"to:ana@example.com"}
			},
			events: timeline(
				0.004, email.EventReceived, `{"attempt":1}`,
				0.005, email.EventValidationFailed, `{"validation":"RECIPIENT","errorCode":"RECIPIENT_NOT_FOUND","errorMessage":"ana@example.com is not known"}`,
				0.005, email.EventFailed, `{"errorCode":"RECIPIENT_NOT_FOUND","errorCategory":"VALIDATION_ERROR","errorMessage":"ana@example.com is not known","willRetry":false}`,
			),
		},
		{
			name: "failed, revealed", status: email.Failed, reveal: true,
			change: func(s *store.EmailDiagnosis) { s.OutcomeUnknown = true },
			events: timeline(
				0.004, email.EventReceived, nil,
				0.004, email.EventValidated, nil,
				0.004, email.EventSentAttempt, attempt,
				0.2, email.EventFailed, `{"errorCode":"SES_REJECTED","errorCategory":"PERMANENT_ERROR","errorMessage":"Email address is not verified: ana@example.com","outcomeUnknown":true,"unheardOf":[1,{"to":"ana@example.com"}]}`,
			),
		},
		{
			name: "waiting for a retry", status: email.RetryScheduled,
			events: timeline(
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
		text, err := ctl.ShowEmail(s, tt.events, tt.reveal)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, "ana@example.com") != tt.reveal {
			t.Errorf("%s: in clear %v, want %v:\n%s", tt.name, !tt.reveal, tt.reveal, text)
		}
		all.WriteString("## " + tt.name + "\n" + text + "\n")
	}
	golden(t, "email_show", all.String())
}

// shownEmail has exactly the fields that email show --json may print.
type shownEmail struct {
	OutboxID, CompanyID, Company, To, RecipientID, ExternalID, Subject, RequestID string
	Status                                                                        email.Status
	Tags                                                                          []string
	Attempts, Throttles                                                           int
	PossibleDuplicate, OutcomeUnknown                                             bool
	SESMessageID, ErrorCode, ErrorReason                                          string
	DurationMS                                                                    *int
	Tries                                                                         email.Tries
	From, ReplyTo                                                                 string
	CC, BCC                                                                       []string
	SendAt                                                                        *time.Time
	CreatedAt, ExpiresAt                                                          time.Time
	NextAttemptAt, SentAt, FailedAt                                               *time.Time
	Events                                                                        []struct {
		Seq       int
		Type      email.EventType
		CreatedAt time.Time
		Metadata  map[string]any
	}
}

type explained struct {
	OutboxID, Company string
	Status            email.Status
	AskedAt           time.Time
	Findings          []struct{ Code, Text string }
}

func (e explained) codes() string {
	var codes []string
	for _, f := range e.Findings {
		codes = append(codes, f.Code)
	}
	return strings.Join(codes, " ")
}

// A failing email from acceptance to its final status, as an operator sees it.
func TestEmail_FromTheDatabase(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	companyID := d.Company(t)
	id := d.Accept(t, companyID, func(e *store.NewEmail) { e.Job.Tags = []string{"invoice"} })
	advance := func(tr store.Transition) {
		t.Helper()
		tr.ID = id
		if done, err := d.Store.Advance(t.Context(), tr); err != nil || !done.Applied {
			t.Fatalf("advance: %+v, %v", done, err)
		}
	}
	report := func(service, details string) {
		t.Helper()
		if err := d.Store.ReportStatus(t.Context(), service, "here-1", time.Now(), json.RawMessage(details)); err != nil {
			t.Fatal(err)
		}
	}
	explain := func(want string) explained {
		t.Helper()
		var got explained
		o.decode(t, &got, "email", "explain", id.String())
		if got.codes() != want || got.OutboxID != id.String() || got.AskedAt.IsZero() {
			t.Errorf("explained %+v, want %s", got, want)
		}
		return got
	}
	event := func(kind email.EventType, metadata map[string]any) email.Event {
		return email.Event{Type: kind, At: time.Now(), Metadata: metadata}
	}

	explain("NO_DISPATCHER DUE DEADLINE")
	report("dispatcher", `{"redis":{"status":"disconnected"}}`)
	explain("REDIS_DOWN DUE DEADLINE")
	report("dispatcher", `{"redis":{"status":"connected"}}`)
	explain("DUE DEADLINE")
	if _, err := d.SQL.ExecContext(t.Context(), `UPDATE process_status SET updated_at = now() - interval '16 s'`); err != nil {
		t.Fatal(err)
	}
	explain("NO_DISPATCHER DUE DEADLINE")
	report("dispatcher", `{}`)
	report("worker", `{}`)
	o.must(t, "company", "suspend", companyID.String(), "--reason", "unpaid")
	if got := explain("COMPANY_SUSPENDED DUE DEADLINE"); !strings.Contains(got.Findings[0].Text, "unpaid") {
		t.Error(got.Findings[0])
	}
	o.must(t, "company", "resume", companyID.String())

	token := uuid.New()
	advance(store.Transition{
		Guard: store.GuardClaim, Token: token, Status: email.Processing, AddAttempts: 1,
		Events: []email.Event{
			event(email.EventReceived, nil), event(email.EventValidated, nil), event(email.EventSentAttempt, map[string]any{"attempt": 1}),
		},
	})
	explain("IN_WORK")
	advance(store.Transition{
		Guard: store.GuardAttempt, Token: token, Status: email.Failed, DeadLetter: true, Duration: 45 * time.Millisecond,
		ErrorCode: "SES_REJECTED", ErrorReason: "Email address is not verified: ana@example.com",
		Events: []email.Event{event(email.EventFailed, map[string]any{
			"errorCode": "SES_REJECTED", "errorMessage": "Email address is not verified: ana@example.com",
		})},
	})
	if got := explain("FAILED RETRY_POSSIBLE"); strings.Contains(got.Findings[0].Text, "ana@example.com") {
		t.Error(got.Findings[0])
	}

	var masked, revealed shownEmail
	o.decode(t, &masked, "email", "show", id.String())
	o.decode(t, &revealed, "email", "show", "--reveal", id.String())
	if masked.To != "a***@e***.com" || masked.ErrorReason != "Email address is not verified: a***@e***.com" ||
		masked.Events[3].Metadata["errorMessage"] != masked.ErrorReason {
		t.Errorf("masked: %+v", masked)
	}
	if revealed.To != "ana@example.com" || !strings.HasSuffix(revealed.ErrorReason, "ana@example.com") ||
		revealed.Events[3].Metadata["errorMessage"] != revealed.ErrorReason {
		t.Errorf("revealed: %+v", revealed)
	}
	if masked.OutboxID != id.String() || masked.Status != email.Failed || masked.Attempts != 1 || masked.ErrorCode != "SES_REJECTED" ||
		*masked.DurationMS != 45 || masked.FailedAt == nil || masked.NextAttemptAt != nil || masked.ExternalID != "CUST-1" || len(masked.Events) != 4 {
		t.Errorf("shown: %+v", masked)
	}
	if diff := cmp.Diff([]string{"invoice"}, masked.Tags); diff != "" {
		t.Error(diff)
	}
	if text := o.must(t, "email", "show", id.String()); strings.Contains(text, "ana@example.com") || !strings.Contains(text, "a***@e***.com") {
		t.Errorf("shown in text:\n%s", text)
	}

	// The outbox row is purged, the log stays.
	if _, err := d.SQL.ExecContext(t.Context(), `DELETE FROM email_outbox`); err != nil {
		t.Fatal(err)
	}
	explain("FAILED PURGED")
	o.decode(t, &masked, "email", "show", id.String())
}

func TestEmailShow_BeforeAnyWorker(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	id := d.Accept(t, d.Company(t), nil)
	var shown shownEmail
	o.decode(t, &shown, "email", "show", id.String())
	if shown.Status != email.Pending || shown.NextAttemptAt == nil || shown.Events == nil || len(shown.Events) != 0 || shown.Tags == nil {
		t.Errorf("shown: %+v", shown)
	}
}
