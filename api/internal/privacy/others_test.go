package privacy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/privacy"
	"email-gateway/shared/email"
	"email-gateway/shared/store/feedback"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// The export to Maria does not contain the Bcc recipients of an email to her: neither in its row, timeline, errors
// nor dead letter.
func TestExport_OmitsOtherBlindCopies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const other = "zeca.alheio@example.com"
	if _, err := w.SQL.ExecContext(t.Context(), `DELETE FROM suppressions`); err != nil { // she is written to once more
		t.Fatal(err)
	}
	for _, status := range []email.Status{email.Sent, email.Failed} {
		id := w.Accept(t, w.company, func(e *outbox.NewEmail) {
			e.Job.To, e.Job.CC, e.Job.BCC = address, []string{"vista@example.com"}, []string{other, address}
			e.Job.Recipient = email.JobRecipient{ExternalID: "c-maria", CPFCNPJHash: email.HashTaxID(cpf, nil), Nome: name, Email: address}
		})
		token := uuid.New()
		w.advance(t, outbox.Transition{
			ID: id, Guard: outbox.GuardClaim, Token: token, Status: email.Processing, AddAttempts: 1, Events: []email.Event{
				{Type: email.EventReceived, At: time.Now()},
				{Type: email.EventValidated, At: time.Now()},
				{Type: email.EventSentAttempt, At: time.Now(), Metadata: map[string]any{"attempt": 1, "attemptId": token.String(), "suppressedCopies": []string{other}}},
			},
		})
		event := map[email.Status]email.EventType{email.Sent: email.EventSent, email.Failed: email.EventFailed}[status]
		w.advance(t, outbox.Transition{
			ID: id, Guard: outbox.GuardAttempt, Token: token, Status: status, DeadLetter: status == email.Failed,
			ErrorCode: "SES_MESSAGE_REJECTED", ErrorReason: "550 <" + other + "> unknown", SESMessageID: "m-blind",
			Events: []email.Event{{Type: event, At: time.Now(), Metadata: map[string]any{"errorMessage": "550 <" + other + "> unknown"}}},
		})
		if status == email.Failed {
			continue
		}
		if r, err := w.Store.RecordFeedback(t.Context(), feedback.Feedback{
			NotificationID: uuid.NewString(), Kind: "Delivery", SESMessageID: "m-blind", OutboxID: id, AttemptID: token, CompanyID: w.company, OccurredAt: time.Now(),
			Event: email.EventDelivered, Addresses: []string{address, other},
			Metadata: map[string]any{"recipients": []map[string]string{{"address": address}, {"address": other}}},
			Masked:   map[string]any{},
		}); err != nil || r.Unmatched {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	for _, q := range []privacy.Query{{CompanyID: w.company, TaxID: cpf}, {CompanyID: w.company, Address: address}} {
		x, err := w.archive.Export(t.Context(), storetest.Operator(), q)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		if at := strings.Index(string(text), other); at >= 0 {
			t.Errorf("the export contains another Bcc recipient: %s", text[max(0, at-300):at+len(other)])
		}
		for _, word := range []string{"vista@example.com", `"bcc":["` + address + `"]`, `"recipients":[{"address":"` + address + `"},{"address":"z***@e***.com"}]`, `"attempt":1`} {
			if !strings.Contains(string(text), word) {
				t.Errorf("the export does not contain %s", word)
			}
		}
	}
}
