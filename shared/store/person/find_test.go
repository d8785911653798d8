package person_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"email-gateway/shared/store"
	"email-gateway/shared/store/person"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/storetest"
)

// A person whose rows lead from one id to the next many times is found completely or not at all.
func TestFind_LongChain(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	const chain = `INSERT INTO email_logs (outbox_id, company_id, recipient_id, recipient, subject, status, attempts, request_id, external_id, tags, expires_at, created_at, event_seq)
		SELECT gen_random_uuid(), $1, md5('r' || n / 2)::uuid, 'p' || n || '@example.com', 's', 'PENDING', 0, 'r', 'x' || (n + 1) / 2, '{}', now(), now(), 0 FROM generate_series($2::int, $3::int) n`
	d.Run(t, chain, company, 0, 20)
	found, err := person.New(d.Store.DB()).Find(t.Context(), company, "p0@example.com")
	if err != nil || len(found.Addresses) != 21 {
		t.Errorf("%d addresses, %v", len(found.Addresses), err)
	}
	d.Run(t, chain, company, 21, 60)
	if found, err = person.New(d.Store.DB()).Find(t.Context(), company, "p0@example.com"); !errors.Is(err, person.ErrNotFollowed) || len(found.Addresses) > 0 {
		t.Errorf("%d addresses, %v", len(found.Addresses), err)
	}
}

// A recipient who was known by the number alone is found by it when it is erased, with the address. A recipient of that id who
// has another number by now is another person.
func TestFind_WithoutTheNumber(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	ana := store.NewRecipient{Recipient: store.Recipient{ID: store.RecipientID(company, "", storetest.HashOf('a'), ""), CPFCNPJHash: storetest.HashOf('a'), Email: "ana@example.com"}}
	storetest.Upsert(t, d, storetest.Intake(t, d, company, ana)...)
	d.Run(t, `UPDATE recipients SET updated_at = now() - interval '31 days'`)
	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseRecipientHashes, 30*24*time.Hour, 10); n != 1 {
		t.Fatalf("%d erased", n)
	}
	found, err := person.New(d.Store.DB()).Find(t.Context(), company, "", storetest.HashOf('a'))
	if err != nil || !slices.Equal(found.Addresses, []string{"ana@example.com"}) || !slices.Contains(found.Recipients, ana.ID) {
		t.Errorf("%+v, %v", found, err)
	}
	d.Run(t, `UPDATE recipients SET cpf_cnpj_hash = $1`, storetest.HashOf('b'))
	if found, err = person.New(d.Store.DB()).Find(t.Context(), company, "", storetest.HashOf('a')); err != nil || len(found.Addresses) > 0 {
		t.Errorf("%+v, %v", found, err)
	}
}
