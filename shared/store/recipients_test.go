package store_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
)

// The same person has the same id in every request of a company, by the first
// identifier that is there.
func TestRecipientID(t *testing.T) {
	t.Parallel()
	a, b := uuid.MustParse("01990000-0000-7000-8000-00000000000a"), uuid.MustParse("01990000-0000-7000-8000-00000000000b")
	type given struct {
		company               uuid.UUID
		external, hash, email string
	}
	for name, tt := range map[string]struct {
		x, y given
		same bool
	}{
		"external id counts alone":  {given{a, "1", "h", "x@y.example"}, given{a, "1", "i", "z@y.example"}, true},
		"then the hash":             {given{a, "", "h", "x@y.example"}, given{a, "", "h", "z@y.example"}, true},
		"then the address":          {given{a, "", "", "x@y.example"}, given{a, "", "", "x@Y.Example"}, true},
		"whose local part has case": {given{a, "", "", "x@y.example"}, given{a, "", "", "X@y.example"}, false},
		"kinds do not mix":          {given{a, "1", "", ""}, given{a, "", "1", ""}, false},
		"nor do companies":          {given{a, "1", "", ""}, given{b, "1", "", ""}, false},
	} {
		x := recipient.ID(tt.x.company, tt.x.external, tt.x.hash, tt.x.email)
		y := recipient.ID(tt.y.company, tt.y.external, tt.y.hash, tt.y.email)
		if (x == y) != tt.same {
			t.Errorf("%s: %s and %s", name, x, y)
		}
	}
	// Ids are stored in databases, so they must never change.
	if got := recipient.ID(a, "1", "", "").String(); got != "79e82ac1-ded0-5d38-96bb-8513bb6ec29d" {
		t.Errorf("got %s", got)
	}
}

func TestRecipientMatches(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	known, deleted := uuid.New(), uuid.New()
	run(t, d, `INSERT INTO recipients (id, company_id, email) VALUES ($1, $2, 'Ana@Example.com')`, known, company)
	run(t, d, `INSERT INTO recipients (id, company_id, email, deleted_at) VALUES ($1, $2, 'ana@example.com', now())`, deleted, company)
	storetest.Intake(t, d, company, recipient.NewRecipient{Recipient: recipient.Recipient{ExternalID: "W", Email: "Wanda@Example.com"}})
	waiting := recipient.ID(company, "W", "", "")
	for name, tt := range map[string]struct {
		company, id uuid.UUID
		address     string
		want        bool
	}{
		"known":              {company, known, "Ana@Example.com", true},
		"domain in any case": {company, known, "Ana@EXAMPLE.COM", true},
		"all in any case":    {company, known, "aNA@example.com", true},
		"another address":    {company, known, "eva@example.com", false},
		"another company's":  {other, known, "Ana@Example.com", false},
		"deleted":            {company, deleted, "ana@example.com", false},
		"unknown":            {company, uuid.New(), "Ana@Example.com", false},
		"waiting":            {company, waiting, "Wanda@EXAMPLE.com", true},
		"waiting, all":       {company, waiting, "wANDA@example.com", true},
		"waiting, elsewhere": {company, waiting, "eva@example.com", false},
		"waiting, another's": {other, waiting, "Wanda@Example.com", false},
	} {
		if got, err := d.Store.RecipientMatches(t.Context(), tt.company, tt.id, tt.address); got != tt.want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// The fields of a person that an email gives are overwritten; the others are kept, above all the encrypted number.
func TestClaim_WritesTheRecipientDown(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	claim := func(taxID []byte, r recipient.Recipient) string {
		t.Helper()
		id := d.Accept(t, company, func(e *outbox.NewEmail) { e.CPFCNPJ = taxID })
		transition := storetest.ClaimOf(company, id, uuid.New(), "CUST-1")
		r.ID = transition.Recipient.ID
		transition.Recipient = &r
		storetest.Apply(t, d, transition)
		if n := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE cpf_cnpj_enc IS NOT NULL`); n != 0 {
			t.Errorf("%d outbox rows hold a number still", n)
		}
		return ask[string](t, d, `SELECT concat_ws('|', external_id, left(cpf_cnpj_hash, 2), convert_from(cpf_cnpj_enc, 'UTF8'), razao_social, nome, email, deleted_at IS NULL)
			FROM recipients WHERE id = $1 AND company_id = $2`, r.ID, company)
	}
	hash := fmt.Sprintf("%064x", 0xab)[62:] + fmt.Sprintf("%062x", 0)
	steps := []struct {
		taxID []byte
		r     recipient.Recipient
		want  string
	}{
		{nil, recipient.Recipient{Email: "a@x.example"}, "a@x.example|t"},
		{[]byte("enc1"), recipient.Recipient{ExternalID: "CUST-1", CPFCNPJHash: hash, Nome: "Ana", Email: "b@x.example"}, "CUST-1|ab|enc1|Ana|b@x.example|t"},
		{nil, recipient.Recipient{RazaoSocial: "Acme", Email: "c@x.example"}, "CUST-1|ab|enc1|Acme|Ana|c@x.example|t"},
		{[]byte("enc2"), recipient.Recipient{CPFCNPJHash: hash, Nome: "Ana Maria", Email: "c@x.example"}, "CUST-1|ab|enc2|Acme|Ana Maria|c@x.example|t"},
	}
	for i, step := range steps {
		if got := claim(step.taxID, step.r); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	if err := d.Store.DeleteRecipient(t.Context(), company, recipient.ID(company, "CUST-1", "", "")); err != nil {
		t.Fatal(err)
	}
	if got, want := claim(nil, steps[2].r), "Acme|c@x.example|t"; got != want {
		t.Errorf("written again after it was deleted: %s, want %s", got, want)
	}
}

// The same few people in many emails, from two processes and in any order: no deadlock, one row each, and the newest email of a
// group determines the fields.
func TestClaim_TheSamePeopleFromTwoProcesses(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	advancers := []*outbox.Advancer{d.Store.NewAdvancer(), open(t, d.URL, store.Options{}).NewAdvancer()}
	const people, emails = 7, 600
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range emails {
		transition := storetest.ClaimOf(company, d.Accept(t, company, nil), uuid.New(), fmt.Sprint("CUST-", (i*i+i/people)%people))
		wg.Go(func() {
			<-start
			if got, err := advancers[i%2].Advance(t.Context(), transition); err != nil || !got.Applied {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	close(start)
	wg.Wait()
	got := map[string]int{
		"recipients": ask[int](t, d, `SELECT count(*) FROM recipients`),
		"linked":     ask[int](t, d, `SELECT count(*) FROM email_logs l JOIN recipients r ON r.id = l.recipient_id`),
		"deadlocks":  ask[int](t, d, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`),
	}
	if diff := cmp.Diff(map[string]int{"recipients": people, "linked": emails, "deadlocks": 0}, got); diff != "" {
		t.Error(diff)
	}
}
