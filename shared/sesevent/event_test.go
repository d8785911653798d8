package sesevent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/sesevent"
	"email-gateway/shared/store/suppression"
	"email-gateway/shared/unsubscribe"
)

const (
	outboxID  = "01990000-0000-7000-8000-000000000001"
	attemptID = "11111111-2222-4333-8444-555555555555"
	companyID = "01990000-0000-7000-8000-000000000002"

	installationID = "8d7f2c1e-93a4-4c55-9a3e-5b1f0c2d7e61"
)

// message is an event in SES's format; object is the part after mail.
func message(kind, object string) string {
	return fmt.Sprintf(`{"eventType":%q,"mail":{"timestamp":"2026-11-21T10:00:00.000Z","messageId":"0100-1","source":"a@acme.example",
		"destination":["ana@example.com"],"headersTruncated":"false","headers":[{"name":"From","value":"a@acme.example"}],
		"tags":{"ses:operation":["SendEmail"],"outbox_id":[%q],"attempt_id":[%q],"company_id":[%q],"installation_id":[%q]}}%s}`,
		kind, outboxID, attemptID, companyID, installationID, object)
}

func TestParse_Kinds(t *testing.T) {
	t.Parallel()
	const at = `"timestamp":"2026-11-21T10:00:05.123Z"`
	var keys unsubscribe.Keys
	if err := keys.UnmarshalText([]byte(strings.Repeat("A", 43) + "=")); err != nil {
		t.Fatal(err)
	}
	token := keys.Seal(unsubscribe.Link{Company: uuid.New(), Mailing: uuid.New(), Address: "ana@example.com"})
	for name, tt := range map[string]struct {
		kind, object string
		event        email.EventType
		suppress     suppression.Reason
		addresses    []string
		metadata     string // but for what all have
	}{
		"send": {"Send", `,"send":{}`, "", "", nil, `null`},
		"delivery": {
			"Delivery", `,"delivery":{` + at + `,"processingTimeMillis":546,"recipients":["ana@example.com"],"smtpResponse":"250 ok <ana@example.com>","reportingMTA":"a8-70.smtp-out.amazonses.com","remoteMtaIp":"192.0.2.1"}`,
			email.EventDelivered, "",
			[]string{"ana@example.com"},
			`{"recipients":[{"address":"ana@example.com"}],"smtpResponse":"250 ok <ana@example.com>","reportingMta":"a8-70.smtp-out.amazonses.com","processingTimeMs":546}`,
		},
		"delay": {
			"DeliveryDelay", `,"deliveryDelay":{` + at + `,"delayType":"MailboxFull","expirationTime":"2026-11-22T10:00:00Z","delayedRecipients":[{"emailAddress":"ana@example.com","status":"4.2.2","diagnosticCode":"smtp; 452"}]}`,
			email.EventDeliveryDelayed, "",
			[]string{"ana@example.com"},
			`{"delayType":"MailboxFull","expirationTime":"2026-11-22T10:00:00Z","recipients":[{"address":"ana@example.com","status":"4.2.2","diagnosticCode":"smtp; 452"}]}`,
		},
		"bounce": {
			"Bounce", `,"bounce":{` + at + `,"bounceType":"Permanent","bounceSubType":"General","feedbackId":"f-1","reportingMTA":"dsn; x","bouncedRecipients":[{"emailAddress":"Ana <ana@example.com>","action":"failed","status":"5.1.1","diagnosticCode":"smtp; 550\u001bc\u009b1m\r\nx"}]}`,
			email.EventBounced, suppression.Bounced,
			[]string{"ana@example.com"},
			`{"bounceType":"Permanent","bounceSubType":"General","feedbackId":"f-1","recipients":[{"address":"ana@example.com","action":"failed","status":"5.1.1","diagnosticCode":"smtp; 550 c 1m  x"}]}`,
		},
		"bounce of a new sort": {
			"Bounce", `,"bounce":{` + at + `,"bounceType":"Permanent","bounceSubType":"New","bouncedRecipients":[]}`,
			email.EventBounced, suppression.Bounced, nil, `{"bounceType":"Permanent","bounceSubType":"New"}`,
		},
		"bounce on the account's list": {
			"Bounce", `,"bounce":{` + at + `,"bounceType":"Permanent","bounceSubType":"OnAccountSuppressionList","bouncedRecipients":[]}`,
			email.EventBounced, "", nil, `{"bounceType":"Permanent","bounceSubType":"OnAccountSuppressionList"}`,
		},
		"bounce on the list of a tenant of SES": {
			"Bounce", `,"bounce":{` + at + `,"bounceType":"Permanent","bounceSubType":"OnTenantSuppressionList","bouncedRecipients":[]}`,
			email.EventBounced, "", nil, `{"bounceType":"Permanent","bounceSubType":"OnTenantSuppressionList"}`,
		},
		"complaint on the account's list": {
			"Complaint", `,"complaint":{` + at + `,"complaintSubType":"OnAccountSuppressionList","complainedRecipients":[]}`,
			email.EventComplained, "", nil, `{"complaintSubType":"OnAccountSuppressionList"}`,
		},
		"predicted bounce": {
			"Bounce", `,"bounce":{` + at + `,"bounceType":"Permanent","bounceSubType":"EmailValidationSuppressed","bouncedRecipients":[{"emailAddress":"ana@example.com"}]}`,
			email.EventBounced, "",
			[]string{"ana@example.com"},
			`{"bounceType":"Permanent","bounceSubType":"EmailValidationSuppressed","recipients":[{"address":"ana@example.com"}]}`,
		},
		"soft bounce": {
			"Bounce", `,"bounce":{` + at + `,"bounceType":"Transient","bounceSubType":"MailboxFull","bouncedRecipients":[{"emailAddress":"ana@example.com"}]}`,
			email.EventBounced, "",
			[]string{"ana@example.com"},
			`{"bounceType":"Transient","bounceSubType":"MailboxFull","recipients":[{"address":"ana@example.com"}]}`,
		},
		"undetermined bounce": {
			"Bounce", `,"bounce":{` + at + `,"bounceType":"Undetermined","bounceSubType":"Undetermined","bouncedRecipients":[{"emailAddress":"ana@example.com"}]}`,
			email.EventBounced, "",
			[]string{"ana@example.com"},
			`{"bounceType":"Undetermined","bounceSubType":"Undetermined","recipients":[{"address":"ana@example.com"}]}`,
		},
		"complaint": {
			"Complaint", `,"complaint":{` + at + `,"complaintSubType":null,"complaintFeedbackType":"abuse","userAgent":"x","feedbackId":"f-2","complainedRecipients":[{"emailAddress":"ana@example.com"},{"emailAddress":"bia@example.com"}]}`,
			email.EventComplained, suppression.Complained,
			[]string{"ana@example.com", "bia@example.com"},
			`{"complaintFeedbackType":"abuse","feedbackId":"f-2","recipients":[{"address":"ana@example.com"},{"address":"bia@example.com"}]}`,
		},
		"praise": {
			"Complaint", `,"complaint":{` + at + `,"complaintFeedbackType":"not-spam","complainedRecipients":[{"emailAddress":"ana@example.com"}]}`,
			email.EventComplained, "",
			[]string{"ana@example.com"},
			`{"complaintFeedbackType":"not-spam","recipients":[{"address":"ana@example.com"}]}`,
		},
		"reject":    {"Reject", `,"reject":{"reason":"Bad content"}`, email.EventRejected, "", nil, `{"reason":"Bad content"}`},
		"rendering": {"Rendering Failure", `,"failure":{"errorMessage":"no 'x'","templateName":"T"}`, email.EventRenderingFailed, "", nil, `{"errorMessage":"no 'x'","templateName":"T"}`},
		"open":      {"Open", `,"open":{` + at + `,"ipAddress":"192.0.2.1","userAgent":"Mozilla"}`, email.EventOpened, "", nil, `{}`},
		"click": {
			"Click", `,"click":{` + at + `,"ipAddress":"192.0.2.1","userAgent":"Mozilla","link":"https://u:p@acme.example/a?token=secret#b","linkTags":{}}`,
			email.EventClicked, "", nil, `{"link":"https://acme.example/a"}`,
		},
		"click on an unsubscribe link": {
			"Click", `,"click":{` + at + `,"link":"` + unsubscribe.URL("https://mail.acme.example/gateway", token) + `"}`,
			email.EventClicked, "", nil, `{"link":"https://mail.acme.example/gateway/u/"}`,
		},
		"click on an escaped unsubscribe link": {
			"Click", `,"click":{` + at + `,"link":"https://acme.example/sair/%41` + token[1:] + `./pt%20br"}`,
			email.EventClicked, "", nil, `{"link":"https://acme.example/sair/./pt%20br"}`,
		},
		"click on a path with an id": {
			"Click", `,"click":{` + at + `,"link":"https://acme.example/pedidos/AQ-018f3c6e-0000-7000-8000-000000000001/a%2Fb"}`,
			email.EventClicked, "", nil, `{"link":"https://acme.example/pedidos/AQ-018f3c6e-0000-7000-8000-000000000001/a%2Fb"}`,
		},
		"subscription": {
			"Subscription", `,"subscription":{` + at + `,"contactList":"c","source":"UnsubscribeHeader","newTopicPreferences":{"unsubscribeAll":true}}`,
			email.EventSubscriptionChanged, "", nil, `{"contactList":"c","source":"UnsubscribeHeader","unsubscribeAll":true}`,
		},
		// A detail of an unexpected type is left out; the other details are kept.
		"an odd detail":  {"Open", `,"open":{` + at + `,"ipAddress":7},"delivery":["new"],"bounce":"none"`, email.EventOpened, "", nil, `{}`},
		"a kind to come": {"Teleported 2", `,"teleported":{}`, "", "", nil, `null`},
	} {
		f, err := sesevent.Parse("sns-1", message(tt.kind, tt.object))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if f.Kind != tt.kind || f.Event != tt.event || f.Suppress != tt.suppress || f.SESMessageID != "0100-1" || f.NotificationID != "sns-1" ||
			f.OutboxID != uuid.MustParse(outboxID) || f.AttemptID != uuid.MustParse(attemptID) || f.CompanyID != uuid.MustParse(companyID) ||
			f.InstallationID != uuid.MustParse(installationID) || f.OccurredAt.IsZero() ||
			f.OnAccountList != strings.Contains(tt.object, "OnAccountSuppressionList") {
			t.Errorf("%s: %+v", name, f)
		}
		if diff := cmp.Diff(tt.addresses, f.Addresses); diff != "" {
			t.Errorf("%s: addresses %s", name, diff)
		}
		got, want := plain(t, f.Metadata), plain(t, json.RawMessage(tt.metadata))
		if f.Metadata != nil {
			for _, always := range []string{"sesMessageId", "attemptId", "occurredAt"} {
				if got[always] == nil {
					t.Errorf("%s: no %s", name, always)
				}
				delete(got, always)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: metadata %s", name, diff)
		}
		if kept, err := json.Marshal(f.Masked); err != nil || strings.Contains(string(kept), "@example.com") {
			t.Errorf("%s: the inbox keeps %s, %v", name, kept, err)
		}
	}
}

func plain(tb testing.TB, value any) (m map[string]any) {
	tb.Helper()
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func TestParse_NoEvent(t *testing.T) {
	t.Parallel()
	const destinationTest = "Successfully validated SNS topic for Amazon SES event publishing."
	for text, want := range map[string]error{
		destinationTest: sesevent.ErrNoEvent,
		`{"notificationType":"AmazonSnsSubscriptionSucceeded","message":"You have successfully subscribed your Amazon SNS topic"}`: sesevent.ErrNoEvent,
		"": sesevent.ErrMalformed, "null": sesevent.ErrMalformed, "[]": sesevent.ErrMalformed, `"Send"`: sesevent.ErrMalformed, `{}`: sesevent.ErrMalformed,
		`{"eventType":"Send"}`: sesevent.ErrMalformed, `{"eventType":"Send","mail":{"messageId":""}}`: sesevent.ErrMalformed,
		`{"eventType":7,"mail":{"messageId":"1"}}`: sesevent.ErrMalformed, `{"eventType":"\u0000","mail":{"messageId":"1"}}`: sesevent.ErrMalformed,
		`{"eventType":"<b>","mail":{"messageId":"1"}}`: sesevent.ErrMalformed,
		// as EventBridge forwards it
		`{"version":"0","detail-type":"Email Bounced","source":"aws.ses","detail":` + message("Bounce", "") + `}`: sesevent.ErrMalformed,
	} {
		envelope, err := json.Marshal(map[string]string{"Type": "Notification", "MessageId": "sns-1", "Message": text})
		if err != nil {
			t.Fatal(err)
		}
		_, direct := sesevent.Parse("sns-1", text)
		_, enveloped := sesevent.ParseQueued(string(envelope))
		_, bare := sesevent.ParseQueued(text)
		for form, err := range map[string]error{"at the route": direct, "in an envelope": enveloped, "bare": bare} {
			if !errors.Is(err, want) {
				t.Errorf("%s %s: %v, want %v", text, form, err, want)
			}
		}
	}
}

// Notifications of an identity have no tags, and another field for the kind.
func TestParse_WithoutTags(t *testing.T) {
	t.Parallel()
	f, err := sesevent.Parse("sns-1", `{"notificationType":"Bounce","mail":{"messageId":"0100-1","timestamp":"x","tags":{"outbox_id":["no id"],"attempt_id":[]}},"bounce":{"bounceType":"Permanent"}}`)
	if err != nil || f.Kind != "Bounce" || f.OutboxID != uuid.Nil || f.AttemptID != uuid.Nil || f.CompanyID != uuid.Nil || !f.OccurredAt.IsZero() {
		t.Errorf("%+v, %v", f, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(message("Bounce", `,"bounce":{"bounceType":"Permanent","bouncedRecipients":[{"emailAddress":"é <ana@example.com>","diagnosticCode":"\ud83d`+strings.Repeat("é", 600)+`"}]}`))
	f.Add(message("Click", `,"click":{"link":"mailto:ana@example.com"}`))
	f.Add(message("Delivery", `,"delivery":{"recipients":["ana@example.com"],"timestamp":"2026-11-21T10:00:05Z"}`))
	f.Fuzz(func(t *testing.T, text string) {
		got, err := sesevent.Parse("sns-1", text)
		if err != nil {
			return
		}
		encoded, err := json.Marshal(got.Metadata)
		if err != nil || len(encoded) > 1<<20 || len(got.Kind) > 50 || len(got.Addresses) > 50 {
			t.Fatalf("%d bytes of %q: %v", len(encoded), got.Kind, err)
		}
	})
}
