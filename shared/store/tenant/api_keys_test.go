package tenant_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"email-gateway/shared/store"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/tenant"
)

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s := open(d)
	company, other := d.Company(t), d.Company(t)
	key := tenant.APIKey{
		KeyID: "k1", CompanyID: company, Name: "billing", Environment: "live", SecretSHA256: bytes.Repeat([]byte{0xff, 0}, 16),
		Scopes: []string{"emails:send", "emails:read"}, RatePerSecond: 200, Burst: 400,
	}
	second := key
	second.KeyID, second.RatePerSecond = "k2", 0
	for _, k := range []tenant.APIKey{key, second} {
		if _, err := s.CreateAPIKey(t.Context(), storetest.Operator(), k); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.CreateAPIKey(t.Context(), storetest.Operator(), key); !errors.Is(err, store.ErrExists) {
		t.Errorf("the same again: %v", err)
	}
	anywhen := cmpopts.IgnoreFields(tenant.APIKey{}, "CreatedAt")
	keys, err := s.APIKeys(t.Context(), company)
	if diff := cmp.Diff([]tenant.APIKey{key, second}, keys, anywhen); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if keys, err := s.APIKeys(t.Context(), other); err != nil || len(keys) != 0 {
		t.Errorf("another company's: %v, %v", keys, err)
	}
}

func TestFindCaller(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s := open(d)
	company := newCompany("Acme", "acme.example", "b.example")
	if err := s.CreateCompany(t.Context(), storetest.Operator(), company); err != nil {
		t.Fatal(err)
	}
	key := tenant.APIKey{KeyID: "k1", CompanyID: company.ID, Name: "billing", Environment: "live", SecretSHA256: make([]byte, 32), Scopes: []string{"emails:send"}}
	if _, err := s.CreateAPIKey(t.Context(), storetest.Operator(), key); err != nil {
		t.Fatal(err)
	}
	find := func() tenant.Caller {
		t.Helper()
		caller, err := s.FindCaller(t.Context(), "k1")
		if err != nil {
			t.Fatal(err)
		}
		return caller
	}
	want := tenant.Caller{APIKey: key, DefaultFrom: company.DefaultFrom, SenderDomains: company.SenderDomains}
	if diff := cmp.Diff(want, find(), cmpopts.IgnoreFields(tenant.Caller{}, "CreatedAt", "ReadAt", "asked"), cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
		t.Error(diff)
	}
	if _, err := s.FindCaller(t.Context(), "k2"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("unknown key: %v", err)
	}

	if err := s.SuspendCompany(t.Context(), audit.Operator{Name: "ana", Reason: "unpaid"}, company.ID); err != nil {
		t.Fatal(err)
	}
	if !find().Suspended {
		t.Error("the caller does not show that its company is suspended")
	}
	if err := s.ResumeCompany(t.Context(), storetest.Operator(), company.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.RevokeAPIKey(t.Context(), storetest.Operator(), "k1"); err != nil {
		t.Fatal(err)
	}
	revoked := find()
	if revoked.Suspended || revoked.RevokedAt == nil {
		t.Errorf("%+v", revoked)
	}
	// Revoking again keeps the moment of the first time.
	if err := s.RevokeAPIKey(t.Context(), storetest.Operator(), "k1"); err != nil || !find().RevokedAt.Equal(*revoked.RevokedAt) {
		t.Errorf("revoked again: %v", err)
	}
	if err := s.RevokeAPIKey(t.Context(), storetest.Operator(), "k2"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("revoke an unknown key: %v", err)
	}
}
