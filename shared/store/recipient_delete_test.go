package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
)

func TestFindRecipient(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	ana := storetest.KnownRecipient("1", "ana@example.com", "Ana")
	ana.CPFCNPJHash, ana.RazaoSocial = storetest.HashOf('a'), "Ana Ltda"
	id := recipient.ID(company, "1", "", "")
	find := func(want recipient.Known) {
		t.Helper()
		got, err := d.Store.FindRecipient(t.Context(), company, id)
		if err != nil || got.CreatedAt.IsZero() || got.UpdatedAt.Before(got.CreatedAt) {
			t.Errorf("%+v, %v", got, err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(got, "CreatedAt", "UpdatedAt")); diff != "" {
			t.Error(diff)
		}
	}
	missing := func(company uuid.UUID) {
		t.Helper()
		if got, err := d.Store.FindRecipient(t.Context(), company, id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	missing(company)
	want := recipient.Known{ID: id, ExternalID: "1", CPFCNPJHash: storetest.HashOf('a'), RazaoSocial: "Ana Ltda", Nome: "Ana", Email: "ana@example.com", Pending: true}
	ids := storetest.Intake(t, d, company, storetest.KnownRecipient("1", "old@example.com", ""), ana)
	find(want)
	missing(other)
	storetest.Upsert(t, d, ids...)
	want.Pending = false
	find(want)
	missing(other)
	storetest.Intake(t, d, company, storetest.KnownRecipient("1", "new@example.com", ""))
	want.Pending = true
	find(want)
}

// A deletion takes effect immediately, also on pending imports, and does not affect later imports.
func TestDeleteRecipient(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	id := recipient.ID(company, "1", "", "")
	gone := func(company uuid.UUID, want error) {
		t.Helper()
		if err := d.Store.DeleteRecipient(t.Context(), company, id); !errors.Is(err, want) {
			t.Errorf("delete: %v, want %v", err, want)
		}
	}
	matches := func(want bool) {
		t.Helper()
		if got, err := d.Store.RecipientMatches(t.Context(), company, id, "ana@Example.com"); got != want || err != nil {
			t.Errorf("matches: %v, %v", got, err)
		}
	}
	numbered := storetest.KnownRecipient("1", "ana@example.com", "Ana")
	numbered.CPFCNPJHash, numbered.CPFCNPJ = storetest.HashOf('a'), []byte("enc")
	gone(company, store.ErrNotFound)

	// While the only intake waits.
	first := storetest.Intake(t, d, company, numbered)
	matches(true)
	gone(other, store.ErrNotFound)
	gone(company, nil)
	matches(false)
	storetest.Upsert(t, d, first...)
	matches(false)
	if n := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE cpf_cnpj_enc IS NOT NULL`); n != 0 {
		t.Error("the number of a deleted recipient is still stored")
	}

	// A later import restores the person.
	second := storetest.Intake(t, d, company, numbered)
	matches(true)
	storetest.Upsert(t, d, second...)
	matches(true)
	if got := storetest.RecipientRow(t, d, company, "1"); got != "1|aa|enc|Ana|ana@example.com|t" {
		t.Error(got)
	}
	gone(other, store.ErrNotFound)

	// Known, and with pending imports.
	third := storetest.Intake(t, d, company, numbered)
	gone(company, nil)
	storetest.Upsert(t, d, append(second, third...)...)
	matches(false)
	if got := storetest.RecipientRow(t, d, company, "1"); got != "1|aa|Ana|ana@example.com|f" {
		t.Error(got)
	}
	gone(company, nil) // again
	matches(false)
	if got := storetest.RecipientRow(t, d, company, "1"); got != "1|aa|Ana|ana@example.com|f" {
		t.Error(got)
	}
}

// A deletion that begins while the worker stores the person's only intake.
func TestDeleteRecipient_DuringTheUpsert(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	ids := storetest.Intake(t, d, company, storetest.KnownRecipient("1", "ana@example.com", "Ana"))
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	id := recipient.ID(company, "1", "", "")
	for _, statement := range []string{
		`INSERT INTO recipients (id, company_id, email, intake_id) SELECT recipient_id, company_id, email, outbox_id FROM recipient_intakes`,
		`DELETE FROM recipient_intakes`,
	} {
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	deleted := make(chan error, 1)
	go func() { deleted <- d.Store.DeleteRecipient(t.Context(), company, id) }()
	storetest.WaitBlocked(t, d, 1)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-deleted; err != nil {
		t.Error(err)
	}
	storetest.Upsert(t, d, ids...)
	if n := ask[int](t, d, `SELECT count(*) FROM recipients WHERE deleted_at IS NOT NULL`); n != 1 {
		t.Errorf("%d deleted", n)
	}
}

// Once the row of a deleted person is purged, the deletion is no longer recorded: emails from before
// that, which wait for longer than such a row is kept, restore no one.
func TestDeleteRecipient_AfterThePurge(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for externalID, tt := range map[string]struct {
		age     time.Duration
		written bool
	}{
		"moved on": {recipient.DeletedKept + time.Hour, false},
		"waiting":  {recipient.DeletedKept - time.Hour, true},
	} {
		id, accepted := uuid.Must(uuid.NewV7()), time.Now().Add(-tt.age)
		first := ask[uuid.UUID](t, d, `SELECT first_id_at($1)`, accepted)
		copy(id[:6], first[:6]) // an id contains its creation time
		d.Accept(t, company, func(e *outbox.NewEmail) {
			e.ID, e.CreatedAt, e.TTL = id, accepted, tt.age+24*time.Hour
			e.Job.OutboxID, e.Job.HTMLRef = id.String(), id.String()
		})
		storetest.Apply(t, d, storetest.ClaimOf(company, id, uuid.New(), externalID))
		if n := ask[int](t, d, `SELECT count(*) FROM recipients WHERE external_id = $1`, externalID); (n == 1) != tt.written {
			t.Errorf("%s: %d recipients", externalID, n)
		}
	}
}
