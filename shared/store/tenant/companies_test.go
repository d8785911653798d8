package tenant_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/tenant"
)

// open returns the store of a database, which wakes no dispatcher.
func open(d storetest.Database) *tenant.Store {
	return tenant.New(d.Store.DB(), func(context.Context, uuid.UUID) error { return nil })
}

func newCompany(name string, domains ...string) tenant.NewCompany {
	return tenant.NewCompany{
		ID: uuid.Must(uuid.NewV7()), Name: name, DefaultFrom: "Acme <billing@acme.example>", SenderDomains: domains,
	}
}

func TestCreateCompany_WithLanesAndDomains(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s := open(d)
	company := newCompany("Acme", "acme.example", "mail.acme.example", "acme.example")
	if err := s.CreateCompany(t.Context(), storetest.Operator(), company); err != nil {
		t.Fatal(err)
	}
	domains, err := s.SenderDomains(t.Context(), company.ID)
	if diff := cmp.Diff([]string{"acme.example", "mail.acme.example"}, domains); err != nil || diff != "" {
		t.Errorf("domains: %v\n%s", err, diff)
	}
	d.Accept(t, company.ID, nil) // which needs a lane
}

// A company with several keys and domains is listed once, and has a key as long as one of them has not ended.
func TestSenders(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s := open(d)
	type sender struct {
		Name    string
		HasKey  bool
		Domains []string
	}
	want := []sender{{"Ended", false, []string{}}, {"Keys", true, []string{"acme.example", "mail.acme.example"}}, {"None", false, []string{}}}
	for _, w := range want {
		company := newCompany(w.Name, w.Domains...)
		if err := s.CreateCompany(t.Context(), storetest.Operator(), company); err != nil {
			t.Fatal(err)
		}
		for i, ends := range []string{"revoked_at = now()", "expires_at = now(), revoked_at = now()", "expires_at = now() + interval '1 h'"} {
			if w.Name == "None" || w.Name == "Ended" && i == 2 {
				continue
			}
			key := tenant.APIKey{
				KeyID: fmt.Sprintf("%s%d", w.Name, i), CompanyID: company.ID, Name: "billing", Environment: "live",
				SecretSHA256: make([]byte, 32), Scopes: []string{"emails:send"},
			}
			if _, err := s.CreateAPIKey(t.Context(), storetest.Operator(), key); err != nil {
				t.Fatal(err)
			}
			d.Run(t, `UPDATE api_keys SET `+ends+` WHERE key_id = $1`, key.KeyID)
		}
	}
	all, err := s.Senders(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []sender
	for _, c := range all {
		got = append(got, sender{c.Name, c.HasKey, c.Domains})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A company is created completely or not at all.
func TestCreateCompany_RefusedAsAWhole(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s := open(d)
	company := newCompany("Acme", "acme.example", "Not.Lower.Case")
	if err := s.CreateCompany(t.Context(), storetest.Operator(), company); err == nil {
		t.Fatal("a domain in upper case was accepted")
	}
	if _, err := s.FindCompany(t.Context(), "Acme"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after the refusal: %v, want ErrNotFound", err)
	}
	company.SenderDomains = nil
	if err := s.CreateCompany(t.Context(), storetest.Operator(), company); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateCompany(t.Context(), storetest.Operator(), newCompany("Acme")); !errors.Is(err, store.ErrExists) {
		t.Errorf("the same name again: %v, want ErrExists", err)
	}
}

func TestFindCompany_ByIDOrExactName(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s := open(d)
	company := newCompany("Acme Ltda")
	if err := s.CreateCompany(t.Context(), storetest.Operator(), company); err != nil {
		t.Fatal(err)
	}
	for _, given := range []string{"Acme Ltda", company.ID.String(), strings.ToUpper(company.ID.String())} {
		if found, err := s.FindCompany(t.Context(), given); err != nil || found.ID != company.ID {
			t.Errorf("%q: found %v, %v", given, found.ID, err)
		}
	}
	for _, given := range []string{"", "acme ltda", "Acme", uuid.Nil.String(), uuid.NewString()} {
		if found, err := s.FindCompany(t.Context(), given); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%q: found %v, %v", given, found, err)
		}
	}
}

// Resuming a company wakes the dispatchers for it after the commit; if that fails, the change succeeds nevertheless.
func TestResumeCompany_Wakes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	var woken []uuid.UUID
	s := tenant.New(d.Store.DB(), func(_ context.Context, of uuid.UUID) error {
		if found, err := d.Store.FindCompany(t.Context(), of.String()); err != nil || found.SuspendedAt != nil {
			t.Errorf("woken before the commit: %+v, %v", found, err)
		}
		woken = append(woken, of)
		return errors.New("no listener")
	})
	if err := s.SuspendCompany(t.Context(), storetest.Operator(), company); err != nil {
		t.Fatal(err)
	}
	if err := s.ResumeCompany(t.Context(), storetest.Operator(), company); err != nil || !cmp.Equal(woken, []uuid.UUID{company}) {
		t.Errorf("woken %v, %v", woken, err)
	}
}
