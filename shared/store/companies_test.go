package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

func newCompany(name string, domains ...string) store.NewCompany {
	return store.NewCompany{
		ID: uuid.Must(uuid.NewV7()), Name: name, DefaultFrom: "Acme <billing@acme.example>", SenderDomains: domains,
	}
}

func TestCreateCompany_WithLanesAndDomains(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := newCompany("Acme", "acme.example", "mail.acme.example", "acme.example")
	if err := d.Store.CreateCompany(t.Context(), storetest.Operator(), company); err != nil {
		t.Fatal(err)
	}
	domains, err := d.Store.SenderDomains(t.Context(), company.ID)
	if diff := cmp.Diff([]string{"acme.example", "mail.acme.example"}, domains); err != nil || diff != "" {
		t.Errorf("domains: %v\n%s", err, diff)
	}
	d.Accept(t, company.ID, nil) // which needs a lane
}

// A company is there whole or not at all.
func TestCreateCompany_RefusedAsAWhole(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := newCompany("Acme", "acme.example", "Not.Lower.Case")
	if err := d.Store.CreateCompany(t.Context(), storetest.Operator(), company); err == nil {
		t.Fatal("a domain in upper case was taken")
	}
	if _, err := d.Store.FindCompany(t.Context(), "Acme"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after the refusal: %v, want ErrNotFound", err)
	}
	company.SenderDomains = nil
	if err := d.Store.CreateCompany(t.Context(), storetest.Operator(), company); err != nil {
		t.Fatal(err)
	}
	if err := d.Store.CreateCompany(t.Context(), storetest.Operator(), newCompany("Acme")); !errors.Is(err, store.ErrExists) {
		t.Errorf("the same name again: %v, want ErrExists", err)
	}
}

func TestFindCompany_ByIDOrExactName(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := newCompany("Acme Ltda")
	if err := d.Store.CreateCompany(t.Context(), storetest.Operator(), company); err != nil {
		t.Fatal(err)
	}
	for _, given := range []string{"Acme Ltda", company.ID.String(), strings.ToUpper(company.ID.String())} {
		if found, err := d.Store.FindCompany(t.Context(), given); err != nil || found.ID != company.ID {
			t.Errorf("%q: found %v, %v", given, found.ID, err)
		}
	}
	for _, given := range []string{"", "acme ltda", "Acme", uuid.Nil.String(), uuid.NewString()} {
		if found, err := d.Store.FindCompany(t.Context(), given); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%q: found %v, %v", given, found, err)
		}
	}
}
