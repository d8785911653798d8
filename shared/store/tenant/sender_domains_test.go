package tenant_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

func TestSenderDomains(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s := open(d)
	company, other := d.Company(t), d.Company(t)
	for _, domain := range []string{"b.example", "a.example", "b.example"} {
		if err := s.AddSenderDomain(t.Context(), storetest.Operator(), company, domain); err != nil {
			t.Error(err)
		}
	}
	if err := s.AddSenderDomain(t.Context(), storetest.Operator(), company, "Upper.example"); err == nil {
		t.Error("a domain in upper case was accepted")
	}
	if err := s.RemoveSenderDomain(t.Context(), storetest.Operator(), other, "a.example"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("remove what another company has: %v", err)
	}
	domains, err := s.SenderDomains(t.Context(), company)
	if diff := cmp.Diff([]string{"a.example", "b.example"}, domains); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if err := s.RemoveSenderDomain(t.Context(), storetest.Operator(), company, "a.example"); err != nil {
		t.Error(err)
	}
	if domains, err = s.SenderDomains(t.Context(), company); err != nil || len(domains) != 1 {
		t.Errorf("%v, %v", domains, err)
	}
}
