package privacy_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/privacy"
	"email-gateway/shared/email"
	"email-gateway/shared/store/feedback"
	mailingstore "email-gateway/shared/store/mailing"
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

// An external id that belongs to two people is not followed from one to the other, whatever the search begins with.
func TestOthers_SharedExternalID(t *testing.T) {
	t.Parallel()
	const ana, rui, nfe, code = "ana@acme.example", "rui@acme.example", "nfe@acme.example", "C100"
	anaHash := email.HashTaxID(joanaCPF, nil)
	mail := func(t *testing.T, w *world, to, hash, request string) {
		t.Helper()
		w.Accept(t, w.company, func(e *outbox.NewEmail) {
			e.RequestID = cmp.Or(request, e.RequestID)
			e.Job.To, e.Job.Recipient = to, email.JobRecipient{ExternalID: code, CPFCNPJHash: hash, Email: to}
		})
	}
	for name, fill := range map[string]func(t *testing.T, w *world){
		"two numbers": func(t *testing.T, w *world) {
			mail(t, w, ana, anaHash, "")
			mail(t, w, rui, email.HashTaxID(cpf, nil), "")
			mail(t, w, nfe, "", "")
		},
		"one request": func(t *testing.T, w *world) {
			for _, to := range []string{nfe, ana, rui} {
				mail(t, w, to, "", "nightly")
			}
			mail(t, w, ana, anaHash, "")
		},
		"alternately": func(t *testing.T, w *world) {
			for range 2 {
				for _, to := range []string{rui, ana, nfe} {
					mail(t, w, to, map[string]string{ana: anaHash}[to], "")
				}
			}
		},
		"one mailing": func(t *testing.T, w *world) {
			m, entries := storetest.NewMailing(w.company, nil), []*mailingstore.NewEntry{}
			for i, to := range []string{ana, rui, nfe} {
				entry := storetest.NewEntry(i + 2)
				entry.Email, entry.ExternalID = to, code
				entries = append(entries, entry)
			}
			entries[0].CPFCNPJHash = anaHash
			if _, _, err := w.Store.IngestMailing(t.Context(), m, func(yield func(mailingstore.Line, error) bool) {
				for _, entry := range entries {
					if !yield(mailingstore.Line{Entry: entry}, nil) {
						return
					}
				}
			}); err != nil {
				t.Fatal(err)
			}
			w.put(t, m.ID, "e-mail\n")
		},
	} {
		for by, query := range map[string]privacy.Query{"address": {Address: ana}, "number": {TaxID: joanaCPF}} {
			t.Run(name+", by "+by, func(t *testing.T) {
				t.Parallel()
				w := newEmptyWorld(t)
				fill(t, w)
				query.CompanyID = w.company
				x, err := w.archive.Export(t.Context(), storetest.Operator(), query)
				if err != nil {
					t.Fatal(err)
				}
				text, err := json.Marshal(x)
				if err != nil || strings.Contains(string(text), rui) || strings.Contains(string(text), nfe) || !slices.Equal(x.KnownBy.SharedExternalIDs, []string{code}) {
					t.Errorf("export: %s (%v)", text, err)
				}
				done, err := w.erase(t.Context(), func(o *privacy.Order) { o.Query = query })
				if err != nil || !done.Complete() {
					t.Fatalf("%+v, %v", done, err)
				}
				if r := done.Receipt; !slices.Equal(r.Addresses, []string{ana}) || len(r.SharedAddresses) != 0 || !slices.Equal(r.SharedExternalIDs, []string{code}) {
					t.Errorf("receipt: %+v", r)
				}
				w.mustNotName(t, ana, anaHash)
				rows := fmt.Sprint(w.rows(t))
				if !strings.Contains(rows, rui) || !strings.Contains(rows, nfe) {
					t.Errorf("other people were erased: %s", rows)
				}
			})
		}
	}
}

// An external id that was used with one address after the other leads to a person's former address.
func TestOthers_FormerAddressOfExternalID(t *testing.T) {
	t.Parallel()
	w := newEmptyWorld(t)
	for _, to := range []string{former, former, later, later} {
		w.toJoana(t, to, func(r *email.JobRecipient) { r.CPFCNPJHash, r.ExternalID = "", "c-joana" })
	}
	done, err := w.erase(t.Context(), func(o *privacy.Order) { o.Query = privacy.Query{CompanyID: w.company, Address: later} })
	if err != nil || !slices.Equal(done.Receipt.Addresses, []string{former, later}) || len(done.Receipt.SharedExternalIDs) != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	w.mustNotName(t, joana...)
}
