package store_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/suppression"
)

func TestSuppressions(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	mailing, note := uuid.New(), "asked by telephone"
	for _, s := range []suppression.Suppression{
		{Address: "Eva@Example.com", Reason: suppression.Unsubscribed, MailingID: &mailing},
		{Address: "eva@example.com", Reason: suppression.Unsubscribed},
		{Address: "eva@example.com", Reason: suppression.Manual, Note: &note},
		{Address: "ana@example.com", Reason: suppression.Bounced},
	} {
		if err := d.Store.Suppress(t.Context(), company, s); err != nil {
			t.Fatal(err)
		}
	}
	list := func(company uuid.UUID, f suppression.Filter) (found []string) {
		t.Helper()
		f.Limit = max(f.Limit, 2)
		all, err := d.Store.Suppressions(t.Context(), company, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			found = append(found, s.Address+" "+string(s.Reason))
		}
		return found
	}
	for name, tt := range map[string]struct {
		company uuid.UUID
		filter  suppression.Filter
		want    string
	}{
		"first page":  {company, suppression.Filter{}, "[ana@example.com BOUNCE eva@example.com MANUAL]"},
		"second page": {company, suppression.Filter{AfterAddress: "eva@example.com", AfterReason: suppression.Manual}, "[eva@example.com UNSUBSCRIBE]"},
		"by address":  {company, suppression.Filter{Address: "EVA@example.com"}, "[eva@example.com MANUAL eva@example.com UNSUBSCRIBE]"},
		"by reason":   {company, suppression.Filter{Reason: suppression.Bounced}, "[ana@example.com BOUNCE]"},
		"of another":  {other, suppression.Filter{}, "[]"},
	} {
		if got := list(tt.company, tt.filter); fmt.Sprint(got) != tt.want {
			t.Errorf("%s: %v, want %s", name, got, tt.want)
		}
	}
	all, err := d.Store.Suppressions(t.Context(), company, suppression.Filter{Address: "eva@example.com", Reason: suppression.Unsubscribed, Limit: 9})
	if err != nil || len(all) != 1 || *all[0].MailingID != mailing {
		t.Errorf("%+v, %v", all, err)
	}

	if err := d.Store.Unsuppress(t.Context(), other, "eva@example.com", ""); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another company's: %v", err)
	}
	if err := d.Store.Unsuppress(t.Context(), company, "Eva@example.com", suppression.Manual); err != nil {
		t.Error(err)
	}
	if err := d.Store.Unsuppress(t.Context(), company, "Eva@example.com", suppression.Manual); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("twice: %v", err)
	}
	if err := d.Store.Unsuppress(t.Context(), company, "eva@example.com", ""); err != nil {
		t.Error(err)
	}
	if got := list(company, suppression.Filter{}); fmt.Sprint(got) != "[ana@example.com BOUNCE]" {
		t.Errorf("left: %v", got)
	}
}
