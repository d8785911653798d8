package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// An email's deadline moves with it. That of a mailing has none before its first try, and
// gets none.
func TestReschedule_Deadline(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	single, mailed := d.Accept(t, company, nil), d.Accept(t, company, nil)
	ofMailing(t, d, company, mailed)
	run(t, d, `UPDATE email_outbox SET expires_at = 'infinity' WHERE id = $1`, mailed)
	for id, want := range map[uuid.UUID]string{single: `expires_at = next_at + interval '2 hours'`, mailed: `expires_at = 'infinity'`} {
		if done, err := d.Store.Reschedule(t.Context(), company, id, at, 2*time.Hour); err != nil || !done.Applied || done.Status != email.Pending {
			t.Fatalf("%+v, %v", done, err)
		}
		if !ask[bool](t, d, `SELECT next_at = $2 AND `+want+` FROM email_outbox WHERE id = $1`, id, at) {
			t.Errorf("not %s", want)
		}
	}
}

// Another company's email is none.
func TestReschedule_OfAnother(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	id := d.Accept(t, d.Company(t), nil)
	if _, err := d.Store.Reschedule(t.Context(), d.Company(t), id, time.Time{}, time.Hour); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
}

// A move against the claim: whoever comes first has the email, and nothing is claimed
// before the time that it was moved to.
func TestReschedule_AgainstTheClaim(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for range 50 {
		id := d.Accept(t, company, nil)
		claimed := make(chan store.Advanced)
		go func() {
			got, err := d.Store.Advance(t.Context(), claimOf(company, id, uuid.New(), "C"))
			if err != nil {
				t.Error(err)
			}
			claimed <- got
		}()
		moved, err := d.Store.Reschedule(t.Context(), company, id, time.Now().Add(time.Hour), time.Hour)
		if claim := <-claimed; err != nil || claim.Applied == moved.Applied {
			t.Fatalf("claimed %+v, moved %+v, %v", claim, moved, err)
		}
	}
}
