package person_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store"
	"email-gateway/shared/store/person"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/storetest"
)

// A person whose rows lead from one id to the next many times is found completely or not at all.
func TestFind_LongChain(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	const chain = `INSERT INTO email_logs (outbox_id, company_id, recipient_id, recipient, subject, status, attempts, request_id, external_id, tags, expires_at, created_at, event_seq)
		SELECT gen_random_uuid(), $1, md5('r' || n / 2)::uuid, 'p' || n || '@example.com', 's', 'PENDING', 0, 'r' || n, 'x' || (n + 1) / 2, '{}', now(), now(), 0 FROM generate_series($2::int, $3::int) n`
	d.Run(t, chain, company, 0, 20)
	found, err := person.New(d.Store.DB()).Find(t.Context(), company, nil, "p0@example.com")
	if err != nil || len(found.Addresses) != 21 {
		t.Errorf("%d addresses, %v", len(found.Addresses), err)
	}
	d.Run(t, chain, company, 21, 60)
	if found, err = person.New(d.Store.DB()).Find(t.Context(), company, nil, "p0@example.com"); !errors.Is(err, person.ErrNotFollowed) || len(found.Addresses) > 0 {
		t.Errorf("%d addresses, %v", len(found.Addresses), err)
	}
}

// A recipient who was known by the number alone is found by it when it is erased, with the address. A recipient of that id who
// has another number by now is another person.
func TestFind_WithoutTheNumber(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	ana := recipient.NewRecipient{Recipient: recipient.Recipient{ID: recipient.ID(company, "", storetest.HashOf('a'), ""), CPFCNPJHash: storetest.HashOf('a'), Email: "ana@example.com"}}
	storetest.Upsert(t, d, storetest.Intake(t, d, company, ana)...)
	d.Run(t, `UPDATE recipients SET updated_at = now() - interval '31 days'`)
	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseRecipientHashes, 30*24*time.Hour, 10); n != 1 {
		t.Fatalf("%d erased", n)
	}
	found, err := person.New(d.Store.DB()).Find(t.Context(), company, nil, "", storetest.HashOf('a'))
	if err != nil || !slices.Equal(found.Addresses, []string{"ana@example.com"}) || !slices.Contains(found.Recipients, ana.ID) {
		t.Errorf("%+v, %v", found, err)
	}
	d.Run(t, `UPDATE recipients SET cpf_cnpj_hash = $1`, storetest.HashOf('b'))
	if found, err = person.New(d.Store.DB()).Find(t.Context(), company, nil, "", storetest.HashOf('a')); err != nil || len(found.Addresses) > 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

// A search in a small company reads none of the rows of the others.
func TestFind_BesideALargeCompany(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	small, large := d.Company(t), d.Company(t)
	const (
		letters = `INSERT INTO dead_letters (id, company_id, target, email, reason, payload)
			SELECT gen_random_uuid(), CASE WHEN $2 THEN $1::uuid END, 'email:send', 'ana@example.com', 'r', jsonb_build_object('companyId', $1::uuid, 'recipient', jsonb_build_object('externalId', 'L' || n))
			FROM generate_series(1, $3::int) n`
		recipients = `INSERT INTO recipients (id, company_id, email, external_id) SELECT gen_random_uuid(), $1, 'ana@example.com', 'R' || n FROM generate_series(1, $2::int) n`
	)
	d.Run(t, letters, large, true, 20_000)
	d.Run(t, letters, large, false, 3)
	d.Run(t, letters, small, true, 3)
	d.Run(t, letters, small, false, 1)
	d.Run(t, recipients, large, 20_000)
	d.Run(t, recipients, small, 3)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			d.Run(t, `ANALYZE`)
		}
		for name, statement := range map[string]string{"dead letters": person.DeadLettersSQL, "recipients": person.RecipientsSQL} {
			plan, read := storetest.Buffers(t, storetest.Connect(t, d, store.Options{}), statement, small, uuid.Nil, 5000, pq.StringArray{"ana@example.com"}, pq.StringArray{}, pq.StringArray{}, pq.StringArray{},
				true, pq.StringArray{}, uuid.Max)
			if read > 100 {
				t.Errorf("%s: %d buffers, analyzed %t\n%s", name, read, analyzed, plan)
			}
		}
	}
	people := person.New(d.Store.DB())
	who := person.Person{CompanyID: small, Addresses: []string{"ana@example.com"}}
	for table, want := range map[person.Table]int{person.DeadLetters: 4, person.Recipients: 3} {
		page, err := people.Rows(t.Context(), who, table, person.Scan{Until: uuid.Max})
		if err != nil || len(page.Rows) != want || page.More {
			t.Errorf("%s: %d rows, %v, want %d", table, len(page.Rows), err, want)
		}
	}
	who.CompanyID = large // more than a page of both
	for _, table := range []person.Table{person.DeadLetters, person.Recipients} {
		found := 0
		for at, more := (person.Scan{Until: uuid.Max}), true; more; {
			page, err := people.Rows(t.Context(), who, table, at)
			if err != nil {
				t.Fatal(err)
			}
			found, more, at.After = found+len(page.Rows), page.More, page.Last
		}
		if found != 20_000 && found != 20_003 {
			t.Errorf("%s: %d rows", table, found)
		}
	}
}
