package privacy_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/mailing"
	"email-gateway/api/internal/privacy"
	"email-gateway/shared/blob"
	"email-gateway/shared/email"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/feedback"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// toAna sends Ana an email with a copy to Maria; its final status is status.
func (w *world) toAna(t *testing.T, status email.Status) (id, token uuid.UUID) {
	t.Helper()
	id = w.Accept(t, w.company, func(e *outbox.NewEmail) {
		e.Job.To, e.Job.CC = "ana.alheia@example.com", []string{address, "rui@example.com"}
		e.Job.Recipient = email.JobRecipient{ExternalID: "c-ana", Nome: "Ana Alheia", Email: e.Job.To}
	})
	token = uuid.New()
	w.advance(t, outbox.Transition{
		ID: id, Guard: outbox.GuardClaim, Token: token, Status: email.Processing, AddAttempts: 1, Events: []email.Event{
			{Type: email.EventReceived, At: time.Now()},
			{Type: email.EventValidated, At: time.Now()},
			{Type: email.EventSentAttempt, At: time.Now(), Metadata: map[string]any{"attemptId": token.String()}},
		},
	})
	event := map[email.Status]email.EventType{email.Sent: email.EventSent, email.Failed: email.EventFailed}[status]
	w.advance(t, outbox.Transition{
		ID: id, Guard: outbox.GuardAttempt, Token: token, Status: status, DeadLetter: status == email.Failed, ErrorCode: "SES_MESSAGE_REJECTED",
		SESMessageID: "m-ana", Events: []email.Event{{Type: event, At: time.Now()}},
	})
	return id, token
}

// delivered is SES's delivery event of the email to Ana, for both addresses.
func (w *world) delivered(t *testing.T, id, token uuid.UUID) {
	t.Helper()
	r, err := w.Store.RecordFeedback(t.Context(), feedback.Feedback{
		NotificationID: uuid.NewString(), Kind: "Delivery", SESMessageID: "m-ana", OutboxID: id, AttemptID: token, CompanyID: w.company, OccurredAt: time.Now(),
		Event: email.EventDelivered, Addresses: []string{"ana.alheia@example.com", address},
		Metadata: map[string]any{"recipients": []map[string]string{{"address": "ana.alheia@example.com"}, {"address": address}}, "n": uuid.NewString()},
		Masked:   map[string]any{"recipients": []map[string]string{{"address": "a***@e***.com"}, {"address": "m***@c***.example"}}},
	})
	if err != nil || r.Unmatched {
		t.Fatalf("%+v, %v", r, err)
	}
}

func (w *world) mustNotNameMaria(t *testing.T, when string) {
	t.Helper()
	if found := w.namesOfMaria(t); len(found) > 0 {
		t.Errorf("%s, rows still name Maria:\n%s", when, strings.Join(found, "\n"))
	}
}

func (w *world) eraseWhole(t *testing.T) privacy.Erased {
	t.Helper()
	done, err := w.erase(t.Context(), nil)
	if err != nil || done.Busy != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	return done
}

// The dead letter of an email to another person is kept, although Maria was to get a copy.
func TestCopies_DeadLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.end(t, w.busy, w.token, email.Sent, false)
	w.toAna(t, email.Failed)
	x, err := w.archive.Export(t.Context(), storetest.Operator(), privacy.Query{CompanyID: w.company, TaxID: cpf})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(x)
	if err != nil || len(x.DeadLetters) != 1 || strings.Contains(string(text), "lheia") {
		t.Errorf("%d dead letters, want 1 (%v); the export names Ana: %v, want false", len(x.DeadLetters), err, strings.Contains(string(text), "lheia"))
	}
	w.eraseWhole(t)
	var open int
	var payload string
	err = w.SQL.QueryRowContext(t.Context(), `SELECT count(*), min(payload::text) FROM dead_letters WHERE email = 'ana.alheia@example.com' AND resolved_at IS NULL`).Scan(&open, &payload)
	if err != nil || open != 1 || !strings.Contains(payload, "rui@example.com") || !strings.Contains(payload, "Ana Alheia") {
		t.Errorf("%d of Ana's dead letters are open, want 1 (%v): %s", open, err, payload)
	}
	w.mustNotNameMaria(t, "afterwards")
}

// The answer to an attempt that is still running may name her again.
func TestCopies_AttemptInFlight(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"PROCESSING", "OUTCOME_UNKNOWN"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.end(t, w.busy, w.token, email.Sent, false)
			id := w.Accept(t, w.company, func(e *outbox.NewEmail) {
				e.Job.To, e.Job.CC = "ana.alheia@example.com", []string{address, "rui@example.com"}
				e.Job.Recipient = email.JobRecipient{ExternalID: "c-ana", Email: e.Job.To}
			})
			token := w.claimed(t, id)
			if status != "PROCESSING" {
				w.alter(t, `UPDATE email_outbox SET status = $2, lease_until = NULL WHERE id = $1`, id, status)
			}
			if done, err := w.erase(t.Context(), nil); err != nil || done.Busy != 1 || done.Complete() {
				t.Errorf("%+v, %v", done, err)
			}
			reason := "550 <" + address + "> unknown"
			w.advance(t, outbox.Transition{
				ID: id, Guard: outbox.GuardAttempt, Token: token, Status: email.Failed, DeadLetter: true, ErrorCode: "SES_MESSAGE_REJECTED", ErrorReason: reason,
				Events: []email.Event{{Type: email.EventFailed, At: time.Now(), Metadata: map[string]any{"errorMessage": reason}}},
			})
			w.eraseWhole(t)
			w.mustNotNameMaria(t, "afterwards")
			if left := w.column(t, `SELECT payload ->> 'cc' FROM email_outbox WHERE id = '`+id.String()+`'`); !slices.Equal(left, []string{`["rui@example.com"]`}) {
				t.Errorf("the copies are %s", left)
			}
		})
	}
}

// Timelines outlive the rows with the recipients of copies, and SES events arrive late.
func TestCopies_Timeline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.end(t, w.busy, w.token, email.Sent, false)
	kept, keptToken := w.toAna(t, email.Sent)
	purged, purgedToken := w.toAna(t, email.Sent)
	w.delivered(t, kept, keptToken)
	w.delivered(t, purged, purgedToken)
	if _, err := w.SQL.ExecContext(t.Context(), `DELETE FROM email_outbox WHERE id = $1`, purged); err != nil {
		t.Fatal(err)
	}
	other, _ := w.toAna(t, email.Sent) // its event contains an address that ends with Maria's
	alter := func(statement string, args ...any) {
		if _, err := w.SQL.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	alter(`DELETE FROM email_outbox WHERE id = $1`, other)
	alter(`UPDATE email_events SET metadata = jsonb_build_object('detail', $2::text) WHERE email_log_id = $1`, other, "ana."+address)
	x, err := w.archive.Export(t.Context(), storetest.Operator(), privacy.Query{CompanyID: w.company, TaxID: cpf})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := json.Marshal(x); err != nil || len(x.Copies) != 3 || strings.Contains(string(text), "lheia") || strings.Contains(string(text), other.String()) {
		t.Errorf("%d copies, want 3 (%v): %s", len(x.Copies), err, x.Copies)
	}
	w.eraseWhole(t)
	alter(`UPDATE email_events SET metadata = '{}' WHERE email_log_id = $1 AND metadata ->> 'detail' = $2`, other, "ana."+address) // fails if the erasure has removed the address
	w.mustNotNameMaria(t, "afterwards")
	w.delivered(t, kept, keptToken)
	w.delivered(t, purged, purgedToken)
	w.mustNotNameMaria(t, "after late SES events")
	var ana int
	if err := w.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM email_logs WHERE recipient = 'ana.alheia@example.com' AND status = 'SENT'`).Scan(&ana); err != nil || ana != 3 {
		t.Errorf("%d of Ana's logs are left, want 3 (%v)", ana, err)
	}
}

// The dead letter of a task without an outbox row has its company only in the payload. The person may be its
// recipient, or be named in the copies or the Reply-To of an email to another person.
func TestErase_DeadTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.end(t, w.busy, w.token, email.Sent, false)
	for _, company := range []uuid.UUID{w.company, w.other} {
		for _, job := range []email.SendJob{
			{To: address, Recipient: email.JobRecipient{Nome: name, Email: address}},
			{To: "ana.alheia@example.com", CC: []string{address, "rui@example.com"}, ReplyTo: address},
		} {
			job.CompanyID = company.String()
			payload, err := json.Marshal(job)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Store.DeadLetterTask(t.Context(), deadletter.Task{TaskID: uuid.NewString(), Target: email.TargetSend, Reason: "OUTBOX_NOT_FOUND", Payload: payload}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if done := w.eraseWhole(t); done.DeadLetters != 2 || done.Copies != 2 || !done.Complete() {
		t.Errorf("%+v", done)
	}
	var copies string
	if err := w.SQL.QueryRowContext(t.Context(), `SELECT payload ->> 'cc' FROM dead_letters WHERE payload ->> 'companyId' = $1 AND resolved_at IS NULL`, w.company.String()).Scan(&copies); err != nil || copies != `["rui@example.com"]` {
		t.Errorf("the copies of the other person's email are %s (%v)", copies, err)
	}
	w.mustNotNameMaria(t, "afterwards")
	var others int
	if err := w.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM dead_letters WHERE $1 IN (payload ->> 'to', payload ->> 'replyTo') AND resolved_at IS NULL`, address).Scan(&others); err != nil || others != 2 {
		t.Errorf("%d dead letters of the other company are left (%v)", others, err)
	}
}

// A line may name her only by the company's own id. Its file is deleted too.
func TestErase_FileOfEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.end(t, w.busy, w.token, email.Sent, false)
	entry := storetest.NewEntry(2)
	entry.Email, entry.ExternalID = "antigo@cliente.example", "c-maria"
	m := storetest.NewMailing(w.company, nil)
	if _, _, err := w.Store.IngestMailing(t.Context(), m, func(yield func(mailingstore.Line, error) bool) { yield(mailingstore.Line{Entry: entry}, nil) }); err != nil {
		t.Fatal(err)
	}
	w.put(t, m.ID, "e-mail;codigo\nantigo@cliente.example;c-maria\n")
	x, err := w.archive.Export(t.Context(), storetest.Operator(), privacy.Query{CompanyID: w.company, TaxID: cpf})
	if err != nil || !slices.ContainsFunc(x.Files, func(f privacy.FileLines) bool { return f.MailingID == m.ID && slices.Equal(f.Lines, []int{2}) }) {
		t.Errorf("files: %+v, %v", x.Files, err)
	}
	w.eraseWhole(t)
	if _, err := w.bucket.Get(t.Context(), mailing.FileKey(w.company, m.ID)); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("reading the file of her entry: got %v, want ErrNotFound", err)
	}
}

// Nothing counts a dry run again. Were it marked as not counted, its other entries would never be deleted.
func TestErase_DryRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.end(t, w.busy, w.token, email.Sent, false)
	hers, others := storetest.NewEntry(2), storetest.NewEntry(3)
	hers.Email, hers.ExternalID, hers.Nome = address, "c-maria", ""
	m := storetest.NewMailing(w.company, func(m *mailingstore.NewMailing) { m.DryRun = true })
	if _, _, err := w.Store.IngestMailing(t.Context(), m, func(yield func(mailingstore.Line, error) bool) {
		_ = yield(mailingstore.Line{Entry: hers}, nil) && yield(mailingstore.Line{Entry: others}, nil)
	}); err != nil {
		t.Fatal(err)
	}
	w.eraseWhole(t)
	w.mustNotNameMaria(t, "afterwards")
	var counted bool
	if err := w.SQL.QueryRowContext(t.Context(), `SELECT counted_at IS NOT NULL FROM mailings WHERE id = $1`, m.ID).Scan(&counted); err != nil || !counted {
		t.Errorf("counted: %t, %v", counted, err)
	}
}

// The entry of an email that is being sent is kept until the email is final.
func TestErase_BusyEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.end(t, w.busy, w.token, email.Sent, false)
	var entry uuid.UUID
	if err := w.SQL.QueryRowContext(t.Context(), `SELECT id FROM mailing_entries WHERE email = $1`, address).Scan(&entry); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, expires_at, status, claim_token, lease_until)
		 SELECT $1, company_id, lane_id, request_id, jsonb_set(payload, '{htmlRef}', '"mailing:x"'), sender, expires_at, 'PROCESSING', id, now() + interval '1 min'
		 FROM email_outbox WHERE payload ->> 'to' = '` + address + `' LIMIT 1`,
		`UPDATE mailing_entries SET status = 'QUEUED' WHERE id = $1`,
	} {
		if _, err := w.SQL.ExecContext(t.Context(), statement, entry); err != nil {
			t.Fatal(err)
		}
	}
	if done, err := w.erase(t.Context(), nil); err != nil || done.Busy != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	var fields string
	if err := w.SQL.QueryRowContext(t.Context(), `SELECT fields::text || nome FROM mailing_entries WHERE id = $1`, entry).Scan(&fields); err != nil || !strings.Contains(fields, "c-maria") {
		t.Errorf("the values of an email that is being sent are %q (%v)", fields, err)
	}
	if _, err := w.SQL.ExecContext(t.Context(), `UPDATE email_outbox SET status = 'SENT', processed_at = now(), lease_until = NULL WHERE id = $1`, entry); err != nil {
		t.Fatal(err)
	}
	w.eraseWhole(t)
	w.mustNotNameMaria(t, "afterwards")
}

// A replay of dead letters may contain her address, also one of an operator.
func TestErase_Replays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.end(t, w.busy, w.token, email.Sent, false)
	note := name + " called"
	for _, company := range []*uuid.UUID{&w.company, nil, &w.other} {
		if _, err := w.SQL.ExecContext(t.Context(), `
INSERT INTO dead_letter_replays (id, company_id, action, filter, requested_by, note, rate, matched, status, finished_at)
VALUES (gen_random_uuid(), $1, 'retry', jsonb_build_object('recipient', $2::text), 'x', $3, 1, 1, 'COMPLETED', now())`, company, address, note); err != nil {
			t.Fatal(err)
		}
	}
	w.eraseWhole(t)
	w.mustNotNameMaria(t, "afterwards")
	var others int
	if err := w.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM dead_letter_replays WHERE note = $1`, note).Scan(&others); err != nil || others != 1 {
		t.Errorf("%d replay requests of the other company are left (%v)", others, err)
	}
}
