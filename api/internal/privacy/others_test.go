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
	"email-gateway/shared/store/recipient"
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

// contact is a person in the rows of a shared external id. hash and nome may be "".
type contact struct{ address, hash, nome string }

// mail sends an email to a contact with the external id, which merges it into the recipient of that id.
func (w *world) mail(t *testing.T, externalID string, to contact, change func(*outbox.NewEmail)) {
	t.Helper()
	id := w.Accept(t, w.company, func(e *outbox.NewEmail) {
		e.Job.To, e.Job.Recipient = to.address, email.JobRecipient{ExternalID: externalID, CPFCNPJHash: to.hash, Email: to.address}
		if change != nil {
			change(e)
		}
	})
	w.end(t, id, w.claimed(t, id), email.Sent, false)
}

// upload ingests a mailing to contacts with one external id.
func (w *world) upload(t *testing.T, externalID string, contacts ...contact) {
	t.Helper()
	m := storetest.NewMailing(w.company, nil)
	if _, _, err := w.Store.IngestMailing(t.Context(), m, func(yield func(mailingstore.Line, error) bool) {
		for i, to := range contacts {
			entry := storetest.NewEntry(i + 2)
			entry.Email, entry.CPFCNPJHash, entry.Nome, entry.ExternalID = to.address, to.hash, to.nome, externalID
			if !yield(mailingstore.Line{Entry: entry}, nil) {
				return
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	w.put(t, m.ID, "e-mail\n")
}

// merge merges the unexpanded entries with the external id into its recipient, as the expansion of their mailings does.
func (w *world) merge(t *testing.T, externalID string) {
	t.Helper()
	w.alter(t, `WITH updates AS (
		SELECT $1::uuid AS recipient_id, $2::uuid AS company_id, id, recipient_external_id AS external_id, cpf_cnpj_hash, cpf_cnpj_enc, razao_social, nome, email, true AS states_email
		FROM mailing_entries WHERE recipient_external_id = $3 AND status = 'PENDING'
	), `+recipient.MergeSQL+`) SELECT`, recipient.ID(w.company, externalID, "", ""), w.company, externalID)
}

// An external id that belongs to two people is not followed from one to the other, whatever the search begins with, and
// neither is the recipient into which their emails were merged.
func TestOthers_SharedExternalID(t *testing.T) {
	t.Parallel()
	const code = "C100"
	anaHash, ruiHash := email.HashTaxID(joanaCPF, nil), email.HashTaxID(cpf, nil)
	ana, rui, nfe := contact{address: "ana@acme.example"}, contact{address: "rui@acme.example"}, contact{address: "nfe@acme.example"}
	anaA := contact{ana.address, anaHash, ""}
	nightly := func(e *outbox.NewEmail) { e.RequestID = "nightly" }
	byBoth := map[string]privacy.Query{"address": {Address: ana.address}, "number": {TaxID: joanaCPF}}
	byAddress := map[string]privacy.Query{"address": {Address: ana.address}}
	for name, tt := range map[string]struct {
		by   map[string]privacy.Query
		fill func(t *testing.T, w *world)
	}{
		"two numbers": {byBoth, func(t *testing.T, w *world) {
			w.mail(t, code, anaA, nil)
			w.mail(t, code, contact{address: rui.address, hash: ruiHash}, nil)
			w.mail(t, code, nfe, nil)
		}},
		"one request": {byBoth, func(t *testing.T, w *world) {
			for _, to := range []contact{nfe, ana, rui} {
				w.mail(t, code, to, nightly)
			}
			w.mail(t, code, anaA, nil)
		}},
		"one request of hours": {byAddress, func(t *testing.T, w *world) {
			for i, to := range []contact{nfe, ana, rui} {
				w.mail(t, code, to, func(e *outbox.NewEmail) {
					nightly(e)
					e.ID = storetest.IDOf(time.Duration(12-5*i) * time.Hour)
				})
			}
		}},
		"alternately": {byBoth, func(t *testing.T, w *world) {
			for range 2 {
				for _, to := range []contact{rui, anaA, nfe} {
					w.mail(t, code, to, nil)
				}
			}
		}},
		"one mailing": {byBoth, func(t *testing.T, w *world) { w.upload(t, code, anaA, rui, nfe) }},
		"one expanded mailing": {byBoth, func(t *testing.T, w *world) {
			w.upload(t, code, anaA, rui, nfe)
			w.merge(t, code)
		}},
		"the recipient has the address and another one's number": {byAddress, func(t *testing.T, w *world) {
			w.upload(t, code, contact{address: rui.address, hash: ruiHash}, nfe, ana)
			w.merge(t, code)
		}},
	} {
		for by, query := range tt.by {
			t.Run(name+", by "+by, func(t *testing.T) {
				t.Parallel()
				w := newEmptyWorld(t)
				tt.fill(t, w)
				query.CompanyID = w.company
				x, err := w.archive.Export(t.Context(), storetest.Operator(), query)
				if err != nil {
					t.Fatal(err)
				}
				text, err := json.Marshal(x)
				if err != nil || strings.Contains(string(text), rui.address) || strings.Contains(string(text), ruiHash) || strings.Contains(string(text), nfe.address) {
					t.Errorf("export: %s (%v)", text, err)
				}
				if !slices.Equal(x.KnownBy.Addresses, []string{ana.address}) || len(x.KnownBy.SharedAddresses) != 0 || !slices.Equal(x.KnownBy.SharedExternalIDs, []string{code}) {
					t.Errorf("export: %+v", x.KnownBy)
				}
				done, err := w.erase(t.Context(), func(o *privacy.Order) { o.Query = query })
				if err != nil || !done.Complete() {
					t.Fatalf("%+v, %v", done, err)
				}
				if r := done.Receipt; !slices.Equal(r.Addresses, []string{ana.address}) || len(r.SharedAddresses) != 0 || !slices.Equal(r.SharedExternalIDs, []string{code}) {
					t.Errorf("receipt: %+v", r)
				}
				w.mustNotName(t, ana.address, anaHash)
				rows := fmt.Sprint(w.rows(t))
				if !strings.Contains(rows, rui.address) || !strings.Contains(rows, nfe.address) {
					t.Errorf("other people were erased: %s", rows)
				}
			})
		}
	}
}

// Of a recipient into which the emails of several people are merged, an erasure removes what is the person's. The entries of
// the others are still expanded, and fill what is empty.
func TestOthers_SharedRecipient(t *testing.T) {
	t.Parallel()
	const code = "C100"
	anaHash, ruiHash := email.HashTaxID(joanaCPF, nil), email.HashTaxID(cpf, nil)
	ana, rui, nfe := contact{"ana@acme.example", "", "Ana"}, contact{"rui@acme.example", ruiHash, "Rui"}, contact{"nfe@acme.example", "", ""}
	for name, tt := range map[string]struct {
		query         privacy.Query
		contacts      []contact
		cleared, then string
	}{
		"number and name":      {privacy.Query{TaxID: joanaCPF}, []contact{{ana.address, anaHash, "Ana"}, nfe, {"rui@acme.example", "", ""}}, "C100|rui@acme.example|t", "C100|rui@acme.example|t"},
		"number":               {privacy.Query{TaxID: joanaCPF}, []contact{{ana.address, anaHash, "Ana"}, nfe, {"rui@acme.example", "", "Rui"}}, "C100|Rui|rui@acme.example|t", "C100|Rui|rui@acme.example|t"},
		"address":              {privacy.Query{Address: ana.address}, []contact{rui, nfe, {ana.address, "", ""}}, "C100|" + ruiHash[:2] + "|Rui|erased@erased.invalid|t", "C100|" + ruiHash[:2] + "|Rui|nfe@acme.example|t"},
		"address and its name": {privacy.Query{Address: ana.address}, []contact{rui, nfe, ana}, "C100|" + ruiHash[:2] + "|erased@erased.invalid|t", "C100|" + ruiHash[:2] + "|Rui|nfe@acme.example|t"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEmptyWorld(t)
			w.upload(t, code, tt.contacts...)
			w.merge(t, code)
			w.intake(t, recipient.NewRecipient{OutboxID: uuid.Must(uuid.NewV7()), Recipient: recipient.Recipient{ID: recipient.ID(w.company, code, "", ""), ExternalID: code, Email: "bia@acme.example"}})
			tt.query.CompanyID = w.company
			done, err := w.erase(t.Context(), func(o *privacy.Order) { o.Query = tt.query })
			if err != nil || done.Receipt.Tables["recipients"] != 1 || done.Receipt.Tables["recipient_intakes"] != 0 {
				t.Errorf("%+v, %v", done, err)
			}
			w.mustNotName(t, ana.address, anaHash, `"ana"`)
			if got := storetest.RecipientRow(t, w.Database, w.company, code); got != tt.cleared {
				t.Errorf("after the erasure: %s, want %s", got, tt.cleared)
			}
			if strings.Contains(tt.cleared, ruiHash[:2]) {
				x, err := w.archive.Export(t.Context(), storetest.Operator(), privacy.Query{CompanyID: w.company, TaxID: cpf})
				if err != nil || len(x.Recipients) != 1 {
					t.Errorf("the export of another person has the recipients %s (%v)", x.Recipients, err)
				}
			}
			w.merge(t, code)
			if got := storetest.RecipientRow(t, w.Database, w.company, code); got != tt.then {
				t.Errorf("after the expansion: %s, want %s", got, tt.then)
			}
		})
	}
}

// People with different numbers who have an external id and one of their addresses in common are several people.
func TestOthers_NumbersWithOneAddress(t *testing.T) {
	t.Parallel()
	const home, work, code = "casa@example.com", "work@example.com", "C5"
	hash, other := email.HashTaxID(joanaCPF, nil), email.HashTaxID(cpf, nil)
	for name, tt := range map[string]struct {
		query             privacy.Query
		addresses, shared []string
		people            int
	}{
		"address":      {privacy.Query{Address: home}, []string{home}, []string{}, 2},
		"number":       {privacy.Query{TaxID: joanaCPF}, []string{}, []string{home}, 1},
		"work address": {privacy.Query{Address: work}, []string{work}, []string{home}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEmptyWorld(t)
			for _, to := range []contact{{work, other, ""}, {home, other, ""}, {home, hash, ""}} {
				w.mail(t, code, to, nil)
			}
			tt.query.CompanyID = w.company
			x, err := w.archive.Export(t.Context(), storetest.Operator(), tt.query)
			if err != nil {
				t.Fatal(err)
			}
			if k := x.KnownBy; k.People != tt.people || !slices.Equal(k.Addresses, tt.addresses) || !slices.Equal(k.SharedAddresses, tt.shared) || !slices.Equal(k.SharedExternalIDs, []string{code}) {
				t.Errorf("export: %+v", k)
			}
			done, err := w.erase(t.Context(), func(o *privacy.Order) { o.Query = tt.query })
			if err != nil || !slices.Equal(done.Receipt.Addresses, tt.addresses) || !slices.Equal(done.Receipt.SharedExternalIDs, []string{code}) {
				t.Errorf("%+v, %v", done, err)
			}
			kept := map[string]string{"address": work, "number": other, "work address": hash}[name]
			if rows := fmt.Sprint(w.rows(t)); !strings.Contains(rows, kept) {
				t.Errorf("%s was erased: %s", kept, rows)
			}
		})
	}
}

// An external id that was used with one address after the other leads to a person's former address, also if a job
// gives all of its requests the same id.
func TestOthers_FormerAddressOfExternalID(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{"own requests": "", "constant request id": "nightly"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEmptyWorld(t)
			for i, to := range []string{former, former, later, later} {
				w.mail(t, "c-joana", contact{address: to}, func(e *outbox.NewEmail) {
					e.ID, e.RequestID = storetest.IDOf(time.Duration(10-i)*24*time.Hour), cmp.Or(request, e.RequestID)
				})
			}
			done, err := w.erase(t.Context(), func(o *privacy.Order) { o.Query = privacy.Query{CompanyID: w.company, Address: later} })
			if err != nil || !slices.Equal(done.Receipt.Addresses, []string{former, later}) || len(done.Receipt.SharedExternalIDs) != 0 {
				t.Errorf("%+v, %v", done, err)
			}
			w.mustNotName(t, joana...)
		})
	}
}
