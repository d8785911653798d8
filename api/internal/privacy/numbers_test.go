package privacy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/privacy"
	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
)

const companyCNPJ = "11222333000181"

// imports imports contacts in one request of some days ago, each with the external id at its place, and forgets the request.
func (w *world) imports(t *testing.T, days int, externalIDs []string, contacts ...contact) {
	t.Helper()
	all, ids := recipient.NewRecipients{CompanyID: w.company, RequestID: "import", CreatedAt: time.Now()}, []uuid.UUID{}
	for i, c := range contacts {
		r := recipient.NewRecipient{OutboxID: storetest.IDOf(time.Duration(days)*24*time.Hour - time.Duration(i)*time.Minute), Recipient: recipient.Recipient{ID: recipient.ID(w.company, externalIDs[i], c.hash, ""), ExternalID: externalIDs[i], CPFCNPJHash: c.hash, Nome: c.nome, Email: c.address}}
		all.Recipients, ids = append(all.Recipients, r), append(ids, r.OutboxID)
	}
	if err := w.Store.AcceptRecipients(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Store.UpsertRecipients(t.Context(), ids)...); err != nil {
		t.Fatal(err)
	}
	w.alter(t, `DELETE FROM email_outbox WHERE target = 'recipients.upsert'`)
}

// mergeNumbers merges the entries without an external id into the recipient of the number.
func (w *world) mergeNumbers(t *testing.T, hash string) {
	t.Helper()
	w.alter(t, `WITH updates AS (
		SELECT $1::uuid AS recipient_id, $2::uuid AS company_id, id, recipient_external_id AS external_id, cpf_cnpj_hash, cpf_cnpj_enc, razao_social, nome, email, true AS states_email
		FROM mailing_entries WHERE cpf_cnpj_hash = $3 AND status = 'PENDING'
	), `+recipient.MergeSQL+`) SELECT`, recipient.ID(w.company, "", hash, ""), w.company, hash)
}

// A search by address does not reach the other contacts of a company by its CNPJ. A search by the CNPJ reaches them all.
func TestNumbers_ContactsOfACompany(t *testing.T) {
	t.Parallel()
	x := email.HashTaxID(companyCNPJ, nil)
	ana, rui, nfe := contact{"ana@acme.example", x, "Ana"}, contact{"rui@acme.example", x, "Rui"}, contact{"nfe@acme.example", x, "Nfe"}
	all, none, own := []contact{ana, rui, nfe}, []string{"", "", ""}, []string{"c-ana", "c-rui", "c-nfe"}
	send := func(t *testing.T, w *world, externalIDs []string, request string) {
		for i, to := range all {
			w.mail(t, externalIDs[i], to, func(e *outbox.NewEmail) { e.RequestID = request })
		}
	}
	mailing := func(t *testing.T, w *world, externalIDs []string) {
		w.upload(t, "", all...)
		for i, to := range all {
			w.alter(t, `UPDATE mailing_entries SET recipient_external_id = nullif($2, '') WHERE email = $1`, to.address, externalIDs[i])
		}
	}
	for name, fill := range map[string]func(t *testing.T, w *world){
		"one mailing":                     func(t *testing.T, w *world) { mailing(t, w, none) },
		"one mailing, own external ids":   func(t *testing.T, w *world) { mailing(t, w, own) },
		"one mailing, one code for all":   func(t *testing.T, w *world) { w.upload(t, "C100", all...) },
		"one request":                     func(t *testing.T, w *world) { send(t, w, none, "nightly") },
		"one request, own external ids":   func(t *testing.T, w *world) { send(t, w, own, "nightly") },
		"one request, one code for all":   func(t *testing.T, w *world) { send(t, w, []string{"C100", "C100", "C100"}, "nightly") },
		"one import, own external ids":    func(t *testing.T, w *world) { w.imports(t, 1, own, all...) },
		"one import, an id of the person": func(t *testing.T, w *world) { w.imports(t, 1, []string{"c-ana", ""}, ana, nfe) },
		"one import, an id of another":    func(t *testing.T, w *world) { w.imports(t, 1, []string{"", "c-rui"}, ana, rui) },
		"imports of several days, own external ids": func(t *testing.T, w *world) {
			for i, to := range all {
				w.imports(t, 9-3*i, own[i:], to)
			}
		},
		"alternately": func(t *testing.T, w *world) {
			for i := range 2 {
				send(t, w, none, fmt.Sprint("r", i))
				w.alter(t, `UPDATE email_logs SET request_id = outbox_id::text`)
				w.alter(t, `UPDATE email_outbox SET request_id = id::text`)
			}
		},
		"one expanded mailing": func(t *testing.T, w *world) {
			mailing(t, w, none)
			w.mergeNumbers(t, x)
		},
		"logs only": func(t *testing.T, w *world) {
			send(t, w, none, "nightly")
			w.alter(t, `DELETE FROM email_outbox`)
		},
		"emails by id, whose recipients have the number from imports": func(t *testing.T, w *world) {
			w.imports(t, 1, own, all...)
			send(t, w, own, "nightly")
			w.alter(t, `DELETE FROM email_outbox`)
		},
		"emails by an id, whose recipient has the number from an import": func(t *testing.T, w *world) {
			w.imports(t, 1, []string{"c-rui"}, rui)
			for range 2 {
				w.mail(t, "c-rui", contact{address: rui.address}, nil)
				w.mail(t, "", ana, nil)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEmptyWorld(t)
			fill(t, w)
			before := w.rows(t)
			byAddress := privacy.Query{CompanyID: w.company, Address: ana.address}
			export, err := w.archive.Export(t.Context(), storetest.Operator(), byAddress)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(export)
			if err != nil || strings.Contains(string(text), "rui") || strings.Contains(string(text), "nfe@") {
				t.Errorf("export: %s (%v)", text, err)
			}
			if k := export.KnownBy; !slices.Equal(k.Addresses, []string{ana.address}) || len(k.TaxIDHashes)+len(k.SharedAddresses) != 0 {
				t.Errorf("known by %+v", k)
			}
			whole, err := w.archive.Export(t.Context(), storetest.Operator(), privacy.Query{CompanyID: w.company, TaxID: companyCNPJ})
			present := slices.DeleteFunc([]string{ana.address, nfe.address, rui.address}, func(a string) bool { return !strings.Contains(fmt.Sprint(before), a) })
			if err != nil || !slices.Equal(whole.KnownBy.Addresses, present) || len(whole.KnownBy.SharedNumbers) != 0 {
				t.Errorf("by the CNPJ: %+v (%v)", whole.KnownBy, err)
			}
			done, err := w.erase(t.Context(), func(o *privacy.Order) { o.Query, o.Forget = byAddress, true })
			if err != nil || !done.Complete() || !slices.Equal(done.Receipt.Addresses, []string{ana.address}) {
				t.Errorf("%+v, %v", done, err)
			}
			w.mustNotName(t, ana.address, `"Ana"`)
			for table, rows := range w.rows(t) {
				kept := func(row string) bool { return strings.Contains(row, "rui@") || strings.Contains(row, "nfe@") }
				was := slices.DeleteFunc(slices.Clone(before[table]), func(row string) bool { return !kept(row) })
				if is := slices.DeleteFunc(rows, func(row string) bool { return !kept(row) }); table != "audit" && len(is) != len(was) {
					t.Errorf("table %s: %d rows of the others, want %d", table, len(is), len(was))
				}
			}
		})
	}
}

// Without its number, the CNPJ's recipient id is not followed from one contact to the others either.
func TestNumbers_WithoutTheNumber(t *testing.T) {
	t.Parallel()
	w := newEmptyWorld(t)
	x := email.HashTaxID(companyCNPJ, nil)
	for _, to := range []contact{{"rui@acme.example", x, ""}, {"ana@acme.example", x, ""}} {
		w.mail(t, "", to, func(e *outbox.NewEmail) { e.RequestID = "nightly" })
	}
	w.alter(t, `DELETE FROM email_outbox`)
	w.alter(t, `UPDATE recipients SET cpf_cnpj_hash = NULL`)
	done, err := w.erase(t.Context(), func(o *privacy.Order) { o.Query = privacy.Query{CompanyID: w.company, Address: "ana@acme.example"} })
	if err != nil || !slices.Equal(done.Receipt.Addresses, []string{"ana@acme.example"}) {
		t.Errorf("%+v, %v", done, err)
	}
	deleted := storetest.Ask[int](t, w.Database, `SELECT count(*) FROM recipients WHERE deleted_at IS NOT NULL`)
	if rows := fmt.Sprint(w.rows(t)["email_logs"]); !strings.Contains(rows, "rui@acme.example") || deleted != 0 {
		t.Errorf("%d recipients are deleted, logs: %s", deleted, rows)
	}
}

// Of the recipient of a CNPJ, an erasure of its last contact removes the address and the name.
func TestNumbers_SharedRecipient(t *testing.T) {
	t.Parallel()
	w := newEmptyWorld(t)
	x := email.HashTaxID(companyCNPJ, nil)
	w.upload(t, "", contact{"rui@acme.example", x, "Rui"}, contact{"ana@acme.example", x, "Ana"})
	w.mergeNumbers(t, x)
	row := func() string {
		return storetest.Ask[string](t, w.Database, `SELECT concat_ws('|', left(cpf_cnpj_hash, 8), nome, email, deleted_at IS NULL) FROM recipients`)
	}
	if got, want := row(), x[:8]+"|Ana|ana@acme.example|t"; got != want {
		t.Fatalf("before: %s, want %s", got, want)
	}
	done, err := w.erase(t.Context(), func(o *privacy.Order) { o.Query = privacy.Query{CompanyID: w.company, Address: "ana@acme.example"} })
	if err != nil || !slices.Equal(done.Receipt.SharedNumbers, []string{x[:8]}) {
		t.Errorf("%+v, %v", done, err)
	}
	if got, want := row(), x[:8]+"|erased@erased.invalid|t"; got != want {
		t.Errorf("after: %s, want %s", got, want)
	}
}

// A number that was used with one address after the other leads to the person's former address, with and without ids.
func TestNumbers_FormerAddress(t *testing.T) {
	t.Parallel()
	hash := email.HashTaxID(joanaCPF, nil)
	for name, ids := range map[string][]string{"number": {"", ""}, "one id": {"c-joana", "c-joana"}, "an id since then": {"", "c-joana"}, "an id until then": {"c-joana", ""}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEmptyWorld(t)
			for i, to := range []string{former, former, later, later} {
				w.mail(t, ids[i/2], contact{address: to, hash: hash}, func(e *outbox.NewEmail) {
					e.ID, e.RequestID = storetest.IDOf(time.Duration(10-i)*24*time.Hour), "nightly"
				})
			}
			for _, address := range []string{former, later} {
				x, err := w.archive.Export(t.Context(), storetest.Operator(), privacy.Query{CompanyID: w.company, Address: address})
				if err != nil || !slices.Equal(x.KnownBy.Addresses, []string{former, later}) || x.Counts["emails"] != 4 || len(x.KnownBy.SharedNumbers) != 0 {
					t.Errorf("by %s: %v, %+v (%v)", address, x.Counts, x.KnownBy, err)
				}
			}
		})
	}
}

// Former addresses that occur with the CNPJ of a company, without the person's id, are those of its contacts too.
func TestNumbers_AddressesOfACompany(t *testing.T) {
	t.Parallel()
	w := newEmptyWorld(t)
	x, theirs := email.HashTaxID(companyCNPJ, nil), []string{"nfe@acme.example", "office@acme.example"}
	for i, to := range append(slices.Clone(theirs), later) {
		w.mail(t, "c-joana", contact{address: to}, func(e *outbox.NewEmail) { e.ID = storetest.IDOf(time.Duration(10-i) * 24 * time.Hour) })
	}
	w.upload(t, "", contact{theirs[0], x, ""}, contact{theirs[1], x, ""})
	export, err := w.archive.Export(t.Context(), storetest.Operator(), privacy.Query{CompanyID: w.company, Address: later})
	if k := export.KnownBy; err != nil || !slices.Equal(k.Addresses, []string{later}) || !slices.Equal(k.SharedAddresses, theirs) || len(export.Entries) != 0 {
		t.Errorf("known by %+v, entries %s (%v)", k, export.Entries, err)
	}
}

// The plain and the keyed hash of one number at one address are one person.
func TestNumbers_TwoForms(t *testing.T) {
	t.Parallel()
	w := newEmptyWorld(t)
	w.archive.HashKey = []byte("a key of hashes")
	for i, hash := range []string{email.HashTaxID(joanaCPF, nil), email.HashTaxID(joanaCPF, w.archive.HashKey)} {
		w.mail(t, "", contact{address: later, hash: hash}, func(e *outbox.NewEmail) { e.ID = storetest.IDOf(time.Duration(10-i) * 24 * time.Hour) })
	}
	x, err := w.archive.Export(t.Context(), storetest.Operator(), privacy.Query{CompanyID: w.company, Address: later})
	if err != nil || x.KnownBy.People != 1 || len(x.KnownBy.TaxIDHashes) != 2 {
		t.Errorf("known by %+v (%v)", x.KnownBy, err)
	}
}
