package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/uuidv7"
	"email-gateway/shared/waittest"
)

// Statements about a person are made by hosts whose clocks differ by minutes: the one that was accepted last wins.
func TestRecipients_AcceptedByHostsWithWrongClocks(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	host := func(ahead time.Duration) *uuidv7.Source {
		ids := uuidv7.NewSource(func() time.Time { return time.Now().Add(ahead) })
		if err := d.Store.DB().ReadClock(t.Context(), ids); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	fast, slow := host(time.Minute), host(-10*time.Minute)
	var last uuid.UUID
	say := func(ids *uuidv7.Source, nome string) {
		t.Helper()
		waittest.Until(t, "the host's clock is right to within the time of an answer of Postgres", func() bool {
			id := ids.New()
			after := id.String() > last.String()
			if after {
				last = id
			}
			return after
		})
		r := storetest.NewRecipients(company, storetest.KnownRecipient("1", nome+"@example.com", nome))
		r.Recipients[0].OutboxID = last
		if err := d.Store.AcceptRecipients(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		storetest.Upsert(t, d, r.Recipients[0].OutboxID)
	}
	mustBe := func(nome string) {
		t.Helper()
		if got, err := d.Store.FindRecipient(t.Context(), company, recipient.ID(company, "1", "", "")); err != nil || got.Nome != nome {
			t.Errorf("%+v, %v; want %s", got, err, nome)
		}
	}
	say(fast, "old")
	say(slow, "corrected")
	mustBe("corrected")
	say(fast, "again")
	if err := d.Store.DeleteRecipient(t.Context(), company, recipient.ID(company, "1", "", "")); err != nil {
		t.Fatal(err)
	}
	last = uuidv7.New()
	say(slow, "returned")
	mustBe("returned")
}
