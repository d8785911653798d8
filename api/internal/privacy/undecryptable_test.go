package privacy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/api/internal/mailing"
	"email-gateway/api/internal/privacy"
	"email-gateway/shared/email"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/person"
	"email-gateway/shared/store/storetest"
)

// One damaged number does not make the keys look wrong.
func TestUnreadable_Number(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.end(t, w.busy, w.token, email.Sent, false)
	if _, err := w.SQL.ExecContext(t.Context(), `INSERT INTO recipients (id, company_id, cpf_cnpj_hash, cpf_cnpj_enc, email)
		SELECT '00000000-0000-5000-8000-000000000001', $1, repeat('0', 64), '\x010203', 'rui@example.com'`, w.other); err != nil {
		t.Fatal(err)
	}
	if _, err := w.archive.Export(t.Context(), storetest.Operator(), privacy.Query{CompanyID: w.company, TaxID: cpf}); err != nil {
		t.Error(err)
	}
}

// A damaged number does not block the export of other data: its row is listed and contains the number as stored.
func TestUnreadable_OwnNumber(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.end(t, w.busy, w.token, email.Sent, false)
	export := func() privacy.Export {
		t.Helper()
		x, err := w.archive.Export(t.Context(), storetest.Operator(), privacy.Query{CompanyID: w.company, TaxID: cpf})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	sound := export()
	if len(sound.UndecryptableNumbers) != 0 || sound.Counts["recipients"] == 0 {
		t.Fatalf("before: %v, %v", sound.UndecryptableNumbers, sound.Counts)
	}
	if _, err := w.SQL.ExecContext(t.Context(), `UPDATE email_outbox SET cpf_cnpj_enc = '\x010203' WHERE id = $1`, w.pending); err != nil {
		t.Fatal(err)
	}
	x := export()
	if diff := cmp.Diff(sound.Counts, x.Counts); diff != "" || !slices.Equal(x.UndecryptableNumbers, []uuid.UUID{w.pending}) {
		t.Errorf("undecryptable numbers %v, counts:\n%s", x.UndecryptableNumbers, diff)
	}
	var rows []string
	for _, row := range x.Emails {
		if strings.Contains(string(row), w.pending.String()) {
			rows = append(rows, string(row))
		}
	}
	if len(rows) != 1 || !strings.Contains(rows[0], `"cpf_cnpj_enc":"\\x010203"`) || strings.Contains(rows[0], `"cpf_cnpj":`) {
		t.Errorf("its row: %s", rows)
	}
}

// A damaged file does not block other data: export and erasure report it, and the recipient is kept until the file
// is deleted.
func TestUnreadable_File(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.end(t, w.busy, w.token, email.Sent, false)
	m := storetest.NewMailing(w.company, nil)
	if _, _, err := w.Store.IngestMailing(t.Context(), m, func(yield func(mailingstore.Line, error) bool) {
		yield(mailingstore.Line{Entry: storetest.NewEntry(2)}, nil)
	}); err != nil {
		t.Fatal(err)
	}
	key := mailing.FileKey(w.company, m.ID)
	if err := w.bucket.Put(t.Context(), key, strings.NewReader("not what was encrypted")); err != nil {
		t.Fatal(err)
	}
	x, err := w.archive.Export(t.Context(), storetest.Operator(), privacy.Query{CompanyID: w.company, TaxID: cpf})
	if err != nil || !slices.Equal(x.UndecryptableFiles, []uuid.UUID{m.ID}) || x.Counts["emails"] == 0 || x.Counts["files"] != 1 {
		t.Errorf("export: %v, %v, %v", x.UndecryptableFiles, x.Counts, err)
	}
	done := w.eraseWhole(t)
	if !slices.Equal(done.UndecryptableFiles, []uuid.UUID{m.ID}) || done.Emails == 0 || done.Files != 1 {
		t.Errorf("%+v", done)
	}
	if found, err := person.New(w.Store.DB()).Find(t.Context(), w.company, nil, "", email.HashTaxID(cpf, nil)); err != nil || len(found.Addresses) == 0 {
		t.Errorf("the recipient was deleted before the file: Find by CPF returns %+v, %v", found, err)
	}
	if err := w.bucket.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if done := w.eraseWhole(t); len(done.UndecryptableFiles) != 0 || done.Recipients == 0 {
		t.Errorf("erasure after the file was deleted: %+v", done)
	}
	w.mustNotNameMaria(t, "afterwards")
}
