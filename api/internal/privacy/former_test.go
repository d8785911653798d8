package privacy_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/api/internal/privacy"
	"email-gateway/shared/email"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/suppression"
)

const (
	former, later = "joana.antiga@cliente.example", "joana.nova@cliente.example"
	joanaCPF      = "11144477735"
)

// joana matches rows that name a person whose address has changed.
var joana = []string{"joana.antiga@", "joana.nova@", joanaCPF, email.HashTaxID(joanaCPF, nil)}

// newEmptyWorld returns two companies without data about people.
func newEmptyWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Database: storetest.New(t)}
	w.bucket, w.archive = newArchive(t, w.Store)
	w.company, w.other = w.Company(t), w.Company(t)
	return w
}

// history is a company that emailed Joana at her former address, and others about her, before importing her with a
// new address.
type history struct {
	*world
	sent, copied uuid.UUID
}

func newHistory(t *testing.T) history {
	t.Helper()
	w := newEmptyWorld(t)
	h := history{world: w}
	h.sent = h.toJoana(t, former, nil)
	h.end(t, h.sent, h.claimed(t, h.sent), email.Sent, false)
	h.copied = h.Accept(t, w.company, func(e *outbox.NewEmail) {
		e.Job.To, e.Job.CC, e.Job.ReplyTo = "ana.alheia@example.com", []string{strings.ToUpper(former[:1]) + former[1:]}, former
		e.Job.Recipient = email.JobRecipient{ExternalID: "c-ana", Email: e.Job.To}
		e.Job.Headers, e.Job.Tags = map[string]string{"X-About": "client " + former}, []string{"copy", former}
	})
	token := h.claimed(t, h.copied)
	h.end(t, h.copied, token, email.Failed, true)
	h.alter(t, `UPDATE email_events SET metadata = metadata || jsonb_build_object('recipients', jsonb_build_array($2::text)) WHERE email_log_id = $1 AND type = 'FAILED'`, h.copied, former)
	h.alter(t, `UPDATE email_logs SET error_reason = 'mailbox ' || $2 || ' is full' WHERE outbox_id = $1`, h.copied, former)
	note := former + " called"
	if err := h.Store.Suppress(t.Context(), w.company, suppression.Suppression{Address: former, Reason: suppression.Unsubscribed, Note: &note}); err != nil {
		t.Fatal(err)
	}
	about := "husband of " + former + ", who called"
	if err := h.Store.Suppress(t.Context(), w.company, suppression.Suppression{Address: "rui@example.com", Reason: suppression.Manual, Note: &about}); err != nil {
		t.Fatal(err)
	}
	h.importJoana(t, later)
	return h
}

func (w *world) alter(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := w.SQL.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

func (w *world) toJoana(t *testing.T, to string, change func(*email.JobRecipient)) uuid.UUID {
	t.Helper()
	return w.Accept(t, w.company, func(e *outbox.NewEmail) {
		e.Job.To, e.Job.Recipient = to, email.JobRecipient{CPFCNPJHash: email.HashTaxID(joanaCPF, nil), Email: to}
		if change != nil {
			change(&e.Job.Recipient)
		}
	})
}

// claimed simulates a worker that starts to send an email, which stores its recipient.
func (w *world) claimed(t *testing.T, id uuid.UUID) (token uuid.UUID) {
	t.Helper()
	var payload []byte
	if err := w.SQL.QueryRowContext(t.Context(), `SELECT payload FROM email_outbox WHERE id = $1`, id).Scan(&payload); err != nil {
		t.Fatal(err)
	}
	var job email.SendJob
	if err := json.Unmarshal(payload, &job); err != nil {
		t.Fatal(err)
	}
	token = uuid.New()
	r := job.Recipient
	w.advance(t, outbox.Transition{
		ID: id, Guard: outbox.GuardClaim, Token: token, Status: email.Processing, AddAttempts: 1, Events: []email.Event{
			{Type: email.EventReceived, At: time.Now()},
			{Type: email.EventValidated, At: time.Now()},
			{Type: email.EventSentAttempt, At: time.Now(), Metadata: map[string]any{"attemptId": token.String()}},
		}, Recipient: &recipient.Recipient{ID: recipient.ID(w.company, r.ExternalID, r.CPFCNPJHash, r.Email), ExternalID: r.ExternalID, CPFCNPJHash: r.CPFCNPJHash, Email: r.Email},
	})
	return token
}

// importJoana imports her with her CPF only.
func (w *world) importJoana(t *testing.T, address string) {
	t.Helper()
	hash := email.HashTaxID(joanaCPF, nil)
	r := recipient.NewRecipient{OutboxID: uuid.Must(uuid.NewV7()), Recipient: recipient.Recipient{ID: recipient.ID(w.company, "", hash, ""), CPFCNPJHash: hash, Email: address}}
	w.intake(t, r)
	if err := errors.Join(w.Store.UpsertRecipients(t.Context(), []uuid.UUID{r.OutboxID})...); err != nil {
		t.Fatal(err)
	}
}

func (w *world) intake(t *testing.T, r recipient.NewRecipient) {
	t.Helper()
	if err := w.Store.AcceptRecipients(t.Context(), recipient.NewRecipients{CompanyID: w.company, RequestID: "r", CreatedAt: time.Now(), Recipients: []recipient.NewRecipient{r}}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) eraseJoana(t *testing.T, change func(*privacy.Order)) privacy.Erased {
	t.Helper()
	done, err := w.erase(t.Context(), func(o *privacy.Order) {
		o.Query = privacy.Query{CompanyID: w.company, TaxID: joanaCPF}
		if change != nil {
			change(o)
		}
	})
	if err != nil {
		t.Fatalf("%+v, %v", done, err)
	}
	return done
}

// mustNotName fails if a row of the company names the person, except for the address of a suppression.
func (w *world) mustNotName(t *testing.T, words ...string) {
	t.Helper()
	for table, rows := range w.rows(t) {
		for _, row := range rows {
			for _, word := range words {
				if strings.Contains(row, word) && !strings.Contains(row, w.other.String()) && (table != "suppressions" || strings.Contains(row, "called")) {
					t.Errorf("table %s contains %s: %s", table, word, row)
				}
			}
		}
	}
}

// byTable returns the receipt's rows for an address.
func byTable(r privacy.Receipt, address string) map[string]int {
	rows := map[string]int{}
	for _, line := range r.Rows {
		if line.Address == address {
			rows[line.Table] = line.Rows
		}
	}
	return rows
}

func TestFormer_Export(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	for name, query := range map[string]privacy.Query{
		"number": {TaxID: joanaCPF}, "former address": {Address: former}, "address": {Address: later}, "other case": {Address: "Joana.Antiga@cliente.example"},
	} {
		query.CompanyID = h.company
		x, err := h.archive.Export(t.Context(), storetest.Operator(), query)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(x.KnownBy.Addresses, []string{former, later}) || len(x.KnownBy.SharedAddresses) != 0 {
			t.Errorf("by %s: KnownBy is %+v", name, x.KnownBy)
		}
		if len(x.Suppressions) != 1 || len(x.Copies) != 1 || len(x.Recipients) != 1 || len(x.EmailLogs) != 1 {
			t.Errorf("by %s: %v", name, x.Counts)
		}
		if text, err := json.Marshal(x); err != nil || strings.Contains(string(text), "ana.alheia") {
			t.Errorf("by %s: the export names Ana (%v): %s", name, err, text)
		}
	}
}

// Everything with a former address is erased and listed in the receipt.
func TestFormer_Erase(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	done := h.eraseJoana(t, nil)
	h.mustNotName(t, joana...)
	r := done.Receipt
	if !slices.Equal(r.Addresses, []string{former, later}) || len(r.SharedAddresses) != 0 {
		t.Errorf("addresses: %+v", r)
	}
	want := map[string]int{"email_outbox": 2, "email_logs": 2, "email_events": 2, "dead_letters": 1, "suppressions": 1}
	if diff := cmp.Diff(want, byTable(r, former)); diff != "" {
		t.Errorf("rows of the former address:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"email_outbox": 1, "recipients": 1}, byTable(r, later)); diff != "" {
		t.Errorf("rows of the later address:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{former: 1}, r.Suppressions); diff != "" {
		t.Errorf("suppressions that stay:\n%s", diff)
	}
	for _, ana := range []string{
		`SELECT count(*) FROM dead_letters WHERE email = 'ana.alheia@example.com' AND resolved_at IS NULL`,
		`SELECT count(*) FROM email_outbox WHERE payload ->> 'to' = 'ana.alheia@example.com' AND payload -> 'tags' = '["copy"]'`,
		`SELECT count(*) FROM email_logs WHERE recipient = 'ana.alheia@example.com' AND error_reason LIKE 'mailbox % is full'`,
	} {
		var n int
		if err := h.SQL.QueryRowContext(t.Context(), ana).Scan(&n); err != nil || n != 1 {
			t.Errorf("%s: %d rows (%v)", ana, n, err)
		}
	}
	if again := h.eraseJoana(t, nil); len(again.Receipt.Rows) != 0 {
		t.Errorf("a repeated erasure has the receipt %+v", again.Receipt)
	}
	h.eraseJoana(t, func(o *privacy.Order) { o.Query, o.Forget = privacy.Query{CompanyID: h.company, Address: former}, true })
	if n := len(h.rows(t)["suppressions"]); n != 1 {
		t.Errorf("%d suppressions are left, want Rui's", n)
	}
}

// An address is followed if it is in the same row as the number or an id of the person.
func TestFormer_EveryTable(t *testing.T) {
	t.Parallel()
	hash := email.HashTaxID(joanaCPF, nil)
	for name, leave := range map[string]func(t *testing.T, w *world){
		"outbox": func(t *testing.T, w *world) { w.toJoana(t, former, nil) },
		"log": func(t *testing.T, w *world) {
			id := w.toJoana(t, former, nil)
			w.end(t, id, w.claimed(t, id), email.Sent, false)
			w.alter(t, `DELETE FROM email_outbox`)
		},
		"external id": func(t *testing.T, w *world) {
			id := w.toJoana(t, "joana@antes.example", func(r *email.JobRecipient) { r.ExternalID = "c-joana" })
			w.end(t, id, w.claimed(t, id), email.Sent, false)
			id = w.toJoana(t, former, func(r *email.JobRecipient) { r.ExternalID, r.CPFCNPJHash = "c-joana", "" })
			w.end(t, id, w.claimed(t, id), email.Sent, false)
			w.alter(t, `DELETE FROM email_outbox WHERE id = $1`, id)
		},
		"import that waits": func(t *testing.T, w *world) {
			w.intake(t, recipient.NewRecipient{OutboxID: uuid.Must(uuid.NewV7()), Recipient: recipient.Recipient{ID: recipient.ID(w.company, "", hash, ""), CPFCNPJHash: hash, Email: former}})
		},
		"dead letter": func(t *testing.T, w *world) {
			id := w.toJoana(t, former, nil)
			w.end(t, id, w.claimed(t, id), email.Failed, true)
			w.alter(t, `DELETE FROM email_outbox`)
			w.alter(t, `UPDATE email_logs SET recipient_id = NULL`)
		},
		"mailing": func(t *testing.T, w *world) {
			entry := storetest.NewEntry(2)
			entry.Email, entry.CPFCNPJHash = former, hash
			m := storetest.NewMailing(w.company, nil)
			if _, _, err := w.Store.IngestMailing(t.Context(), m, func(yield func(mailingstore.Line, error) bool) { yield(mailingstore.Line{Entry: entry}, nil) }); err != nil {
				t.Fatal(err)
			}
			w.put(t, m.ID, "e-mail;cpf\n"+former+";111.444.777-35\n")
		},
		"hash of the punctuated number": func(t *testing.T, w *world) {
			w.toJoana(t, former, func(r *email.JobRecipient) { r.CPFCNPJHash = email.HashTaxID("111.444.777-35", nil) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEmptyWorld(t)
			leave(t, w)
			w.importJoana(t, later)
			note := "called"
			if err := w.Store.Suppress(t.Context(), w.company, suppression.Suppression{Address: former, Reason: suppression.Unsubscribed, Note: &note}); err != nil {
				t.Fatal(err)
			}
			x, err := w.archive.Export(t.Context(), storetest.Operator(), privacy.Query{CompanyID: w.company, TaxID: joanaCPF})
			if err != nil || len(x.Suppressions) != 1 {
				t.Errorf("%d suppressions, known by %+v (%v)", len(x.Suppressions), x.KnownBy, err)
			}
			done := w.eraseJoana(t, nil)
			w.mustNotName(t, joana...)
			if !slices.Contains(done.Receipt.Addresses, former) || byTable(done.Receipt, former)["suppressions"] != 1 {
				t.Errorf("receipt: %+v", done.Receipt)
			}
		})
	}
}

// An address that also belongs to another person, now or in the past, is listed as shared; rows that name Joana by a
// number or an id are erased.
func TestFormer_Shared(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]func(*email.JobRecipient){
		"number":      func(r *email.JobRecipient) { r.CPFCNPJHash = email.HashTaxID(cpf, nil) },
		"external id": func(r *email.JobRecipient) { r.CPFCNPJHash, r.ExternalID = "", "c-rui" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHistory(t)
			theirs := h.toJoana(t, former, other)
			h.end(t, theirs, h.claimed(t, theirs), email.Sent, false)
			done := h.eraseJoana(t, nil)
			if !slices.Equal(done.Receipt.SharedAddresses, []string{former}) || !slices.Equal(done.Receipt.Addresses, []string{later}) || done.Shared != 1 {
				t.Errorf("receipt: %+v", done.Receipt)
			}
			h.mustNotName(t, "joana.nova@", joanaCPF, email.HashTaxID(joanaCPF, nil))
			var notes, logs int
			err := h.SQL.QueryRowContext(t.Context(), `SELECT (SELECT count(note) FROM suppressions), (SELECT count(*) FROM email_logs WHERE recipient = $1)`, former).Scan(&notes, &logs)
			if err != nil || notes != 2 || logs != 1 {
				t.Errorf("%d notes and %d logs at the shared address (%v)", notes, logs, err)
			}
			if want := map[string]int{"email_outbox": 1, "email_logs": 1, "email_events": 1}; !maps.Equal(byTable(done.Receipt, former), want) {
				t.Errorf("rows at the shared address: %v, want %v", byTable(done.Receipt, former), want)
			}
		})
	}
}

// A list that contains an address without a person does not make it shared.
func TestFormer_AddressWithoutAPersonIsNotShared(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	h.intake(t, recipient.NewRecipient{OutboxID: uuid.Must(uuid.NewV7()), Recipient: recipient.Recipient{ID: recipient.ID(h.company, "", "", former), Email: former}})
	done := h.eraseJoana(t, nil)
	h.mustNotName(t, joana...)
	if len(done.Receipt.SharedAddresses) != 0 {
		t.Errorf("receipt: %+v", done.Receipt)
	}
}

// An id that now belongs to another person is not followed for Joana.
func TestFormer_IDOfAnotherPerson(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	reused := func(r *email.JobRecipient) { r.ExternalID = "c-7" }
	old := h.toJoana(t, former, reused)
	h.end(t, old, h.claimed(t, old), email.Sent, false)
	theirs := h.toJoana(t, "bia@example.com", func(r *email.JobRecipient) { r.ExternalID, r.CPFCNPJHash = "c-7", email.HashTaxID(cpf, nil) })
	h.end(t, theirs, h.claimed(t, theirs), email.Sent, false)
	done := h.eraseJoana(t, nil)
	if r := done.Receipt; !slices.Equal(r.Addresses, []string{former, later}) || len(r.SharedAddresses) != 0 {
		t.Errorf("addresses: %+v", r)
	}
	h.mustNotName(t, joana...)
	var bia int
	err := h.SQL.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM recipients WHERE email = 'bia@example.com') + (SELECT count(*) FROM email_logs WHERE recipient = 'bia@example.com')`).Scan(&bia)
	if err != nil || bia != 2 {
		t.Errorf("%d of Bia's rows are left, want 2 (%v)", bia, err)
	}
}

// After an interruption, the next run still has the former addresses that are no longer in the rows.
func TestFormer_Interrupted(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	for steps := 0; ; steps++ {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		h.archive.Progress = func(string, int) {
			if n++; n > steps {
				cancel()
			}
		}
		done, err := h.erase(ctx, func(o *privacy.Order) { o.Query = privacy.Query{CompanyID: h.company, TaxID: joanaCPF} })
		cancel()
		if err == nil {
			if !slices.Contains(done.Receipt.Addresses, former) {
				t.Errorf("receipt: %+v", done.Receipt)
			}
			break
		}
		if steps > 30 {
			t.Fatalf("the erasure did not complete within 30 runs: %v", err)
		}
	}
	h.mustNotName(t, joana...)
	if left := h.rows(t)["person_erasures"]; len(left) != 0 {
		t.Errorf("person_erasures still has her addresses: %s", left)
	}
}
