package tenant_test

import (
	"context"
	"errors"
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
