package retention_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/tenant"
)

// numbered creates a recipient with a number that was last updated that long ago.
func numbered(t *testing.T, d storetest.Database, company uuid.UUID, externalID string, age time.Duration) {
	t.Helper()
	ana := storetest.KnownRecipient(externalID, "ana@example.com", "Ana")
	ana.CPFCNPJHash, ana.CPFCNPJ = storetest.HashOf('a'), []byte("enc")
	storetest.Upsert(t, d, storetest.Intake(t, d, company, ana)...)
	d.Run(t, `UPDATE recipients SET updated_at = now() - $3 * interval '1 ms' WHERE external_id = $1 AND company_id = $2`, externalID, company, age.Milliseconds())
}

func ownHashes(t *testing.T, d storetest.Database, company uuid.UUID, days int) {
	t.Helper()
	if _, err := d.Store.SetRetention(t.Context(), storetest.Because("their contract"), tenant.Retention{CompanyID: company, Hashes: &days}); err != nil {
		t.Fatal(err)
	}
}

func TestEraseRecipientHashes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	ownHashes(t, d, other, 7)
	numbered(t, d, company, "old", 31*day)
	numbered(t, d, company, "young", 29*day)
	numbered(t, d, other, "theirs", 8*day)
	numbered(t, d, other, "theirs, young", 6*day)
	left := func() string {
		t.Helper()
		return storetest.Ask[string](t, d, `SELECT coalesce(string_agg(external_id, ', ' ORDER BY external_id), '') FROM recipients WHERE cpf_cnpj_hash IS NOT NULL OR cpf_cnpj_enc IS NOT NULL`)
	}
	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseRecipientHashes, 0, 2); n != 1 || left() != "old, theirs, young, young" {
		t.Errorf("with unlimited retention except for one company: %d erased, left %s", n, left())
	}
	d.Run(t, `DELETE FROM retention_walks`)
	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseRecipientHashes, 30*day, 2); n != 1 || left() != "theirs, young, young" {
		t.Errorf("%d erased, left %s", n, left())
	}
	if who := storetest.RecipientRow(t, d, company, "old"); who != "old|Ana|ana@example.com|t" {
		t.Errorf("left of the recipient: %s", who)
	}
	// Each row is checked once a day.
	d.Run(t, `UPDATE recipients SET updated_at = now() - interval '31 days' WHERE external_id = 'young'`)
	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseRecipientHashes, 30*day, 2); n != 0 {
		t.Errorf("%d numbers behind the scan position were erased, want none", n)
	}
	d.Run(t, `UPDATE retention_walks SET begun_at = now() - interval '25 hours'`)
	storetest.Drain(t, retention.New(d.Store.DB()).EraseRecipientHashes, 30*day, 2)
	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseRecipientHashes, 30*day, 2); n != 1 {
		t.Errorf("%d erased a day later", n)
	}
}

// A recipient that was known by the number alone is the same recipient when an email has the number again.
func TestEraseRecipientHashes_TheNumberComesBack(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	write := func() {
		t.Helper()
		id, token := d.Accept(t, company, nil), uuid.New()
		claim := storetest.ClaimOf(company, id, token, "")
		claim.Recipient = &recipient.Recipient{ID: recipient.ID(company, "", storetest.HashOf('a'), "ana@example.com"), CPFCNPJHash: storetest.HashOf('a'), Email: "ana@example.com"}
		storetest.Apply(t, d, claim)
	}
	write()
	d.Run(t, `UPDATE recipients SET updated_at = now() - interval '31 days'`)
	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseRecipientHashes, 30*day, 10); n != 1 {
		t.Fatalf("%d erased", n)
	}
	write()
	if n := storetest.Ask[int](t, d, `SELECT count(*) FROM recipients`); n != 1 {
		t.Errorf("%d recipients", n)
	}
	if hash := storetest.Ask[string](t, d, `SELECT coalesce(cpf_cnpj_hash, '') FROM recipients`); hash != storetest.HashOf('a') {
		t.Errorf("its number is %q", hash)
	}
}

// An updated recipient keeps the number: the retention period begins anew.
func TestEraseRecipientHashes_NotAfterAnUpdate(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	numbered(t, d, company, "held", 31*day)
	numbered(t, d, company, "free", 31*day)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `UPDATE recipients SET updated_at = now() WHERE external_id = 'held'`); err != nil {
		t.Fatal(err)
	}
	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseRecipientHashes, 30*day, 10); n != 1 {
		t.Errorf("%d erased", n)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if left := storetest.Ask[string](t, d, `SELECT string_agg(external_id, ', ') FROM recipients WHERE cpf_cnpj_hash IS NOT NULL AND cpf_cnpj_enc IS NOT NULL`); left != "held" {
		t.Errorf("left %s", left)
	}
}

// numberedMailing is endedMailing with a number in each of two entries without emails.
func numberedMailing(t *testing.T, d storetest.Database, company uuid.UUID, status string, age time.Duration) uuid.UUID {
	t.Helper()
	id := endedMailing(t, d, company, 2, status, age)
	d.Run(t, `UPDATE mailing_entries SET cpf_cnpj_hash = $2, cpf_cnpj_enc = 'enc', razao_social = 'Ana Ltda', status = CASE WHEN $3 = 'FAILED' THEN 'PENDING' ELSE status END,
		id = (left(first_id_at(now() - ($4::bigint + 60000) * interval '1 ms')::text, 24) || right(id::text, 12))::uuid WHERE mailing_id = $1`,
		id, storetest.HashOf('a'), status, age.Milliseconds())
	return id
}

func TestEraseEntryHashes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	ownHashes(t, d, other, 7)
	numberedMailing(t, d, company, "COMPLETED", 31*day)
	numberedMailing(t, d, company, "CANCELLED", 31*day)
	stay := []uuid.UUID{
		numberedMailing(t, d, company, "COMPLETED", 29*day),
		numberedMailing(t, d, company, "FAILED", 31*day), // it may be resumed
		numberedMailing(t, d, company, "PAUSED", 31*day),
		numberedMailing(t, d, company, "SENDING", 31*day),
		numberedMailing(t, d, company, "CANCELLED", 32*day),
		numberedMailing(t, d, other, "COMPLETED", 6*day),
	}
	d.Run(t, `UPDATE mailings SET settling = 'cancel' WHERE id = $1`, stay[4]) // its entries are being ended
	numberedMailing(t, d, other, "COMPLETED", 8*day)
	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseEntryHashes, 0, 3); n != 2 {
		t.Errorf("with unlimited retention except for one company: %d erased", n)
	}
	d.Run(t, `DELETE FROM retention_walks`)
	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseEntryHashes, 30*day, 3); n != 4 {
		t.Errorf("%d erased", n)
	}
	expectKept(t, d, "mailing_entries WHERE cpf_cnpj_hash IS NOT NULL AND cpf_cnpj_enc IS NOT NULL", "mailing_id", stay...)
	if n := storetest.Ask[int](t, d, `SELECT count(*) FROM mailing_entries WHERE token <> '' AND fields = '{Recife}' AND nome = 'Ana'`); n != 18 {
		t.Errorf("%d entries have their values", n)
	}
}

// The values of entries without an email are erased too: no body is deleted for these.
func TestEraseEntryValues(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	seven := 7
	if _, err := d.Store.SetRetention(t.Context(), storetest.Because("their contract"), tenant.Retention{CompanyID: other, Bodies: &seven}); err != nil {
		t.Fatal(err)
	}
	old := numberedMailing(t, d, company, "COMPLETED", 31*day) // as a dry run leaves it
	stay := []uuid.UUID{
		numberedMailing(t, d, company, "CANCELLED", 29*day),
		numberedMailing(t, d, company, "FAILED", 31*day),
		numberedMailing(t, d, company, "PAUSED", 31*day),
		numberedMailing(t, d, company, "PROCESSING", 31*day),
		numberedMailing(t, d, company, "CANCELLED", 32*day),
		numberedMailing(t, d, other, "COMPLETED", 6*day),
	}
	d.Run(t, `UPDATE mailings SET settling = 'cancel' WHERE id = $1`, stay[4])
	numberedMailing(t, d, other, "CANCELLED", 8*day)
	id := storetest.EndedEmail(t, d, company, 40*day, email.Failed) // can be sent again as long as it has its body
	mailing := storetest.OfMailing(t, d, company, id)
	d.Run(t, `UPDATE mailings SET status = 'COMPLETED', failed = 1, counted_at = now(), completed_at = now() - interval '31 days' WHERE id = $1`, mailing)

	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseEntryValues, 0, 3); n != 2 {
		t.Errorf("with unlimited body retention except for one company: %d erased", n)
	}
	d.Run(t, `DELETE FROM retention_walks`)
	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseEntryValues, 30*day, 3); n != 2 {
		t.Errorf("%d emptied", n)
	}
	expectKept(t, d, "mailing_entries WHERE fields <> '{}' AND token <> ''", "mailing_id", append(stay, mailing)...)
	left := storetest.Ask[string](t, d, `SELECT string_agg(concat_ws('|', email, status, fields, token, nome, razao_social, cpf_cnpj_hash, cpf_cnpj_enc), ' ' ORDER BY line_no)
		FROM mailing_entries WHERE mailing_id = $1`, old)
	if left != "user2@example.com|CANCELLED|{}| user3@example.com|CANCELLED|{}|" {
		t.Errorf("left of them: %s", left)
	}
}
