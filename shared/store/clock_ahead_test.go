package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// Postgres's clock was an hour ahead before it was set back, or before a failover: what was leased or enqueued then is
// returned at once, not an hour later. A current lease, or a task that was just enqueued, is not.
func TestRescue_AfterClockWasAhead(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	claimed, current := uuid.New(), uuid.New()
	abandoned, held := d.Accept(t, company, nil), d.Accept(t, company, nil)
	storetest.Apply(t, d, storetest.ClaimOf(company, abandoned, claimed, "C"), storetest.ClaimOf(company, held, current, "D"))
	lost, queued := d.Accept(t, company, nil), d.Accept(t, company, nil)
	run(t, d, `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = ANY (ARRAY[$1, $2]::uuid[])`, lost, queued)
	run(t, d, `UPDATE email_outbox SET lease_until = now() + interval '1 h' WHERE id = $1`, abandoned)
	run(t, d, `UPDATE email_outbox SET enqueued_at = now() + interval '1 h' WHERE id = $1`, lost)

	claims, _, err := d.Store.AbandonedClaims(t.Context(), time.Second, 10, time.Time{})
	if err != nil || len(claims) != 1 || claims[0].ID != abandoned {
		t.Errorf("abandoned: %v, %v", claims, err)
	}
	for id, token := range map[uuid.UUID]uuid.UUID{abandoned: claimed, held: current} {
		got, err := d.Store.Advance(t.Context(), outbox.Transition{
			ID: id, Guard: outbox.GuardAbandoned, Token: token, Status: email.OutcomeUnknown, Delay: time.Hour, OutcomeUnknown: true,
			Events: []email.Event{{Type: email.EventOutcomeUnknown, At: time.Now()}},
		})
		if err != nil || got.Applied != (id == abandoned) {
			t.Errorf("claim of %s: %+v, %v", id, got, err)
		}
	}
	found, err := d.Store.LongEnqueued(t.Context(), time.Minute, uuid.Nil, 10, time.Time{})
	if err != nil || len(found.Long) != 1 || found.Long[0].ID != lost || found.DueIn != 0 {
		t.Errorf("long enqueued: %+v, %v", found, err)
	}
	if still, err := d.Store.StillEnqueued(t.Context(), []uuid.UUID{lost, queued}, time.Minute); err != nil || !slices.Equal(still, []uuid.UUID{lost}) {
		t.Errorf("still enqueued: %v, %v", still, err)
	}
	if n, err := d.Store.ReturnLost(t.Context(), []uuid.UUID{lost, queued}, time.Minute); err != nil || n.All() != 1 {
		t.Errorf("returned: %+v, %v", n, err)
	}
}

// A mailing whose job wrote its last heartbeat by a clock that was an hour ahead is recovered, locked by the next job
// and counted.
func TestMailings_AfterClockWasAhead(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	silent, dropped, live := d.Mailing(t, company, 1, nil), d.Mailing(t, company, 1, nil), d.Mailing(t, company, 1, nil)
	lock := func(id uuid.UUID, want mailing.Lock) {
		t.Helper()
		if _, got, err := d.Store.LockMailing(t.Context(), id, 1, time.Minute, time.Second); err != nil || got != want {
			t.Errorf("lock: %v, %v, want %v", got, err, want)
		}
	}
	ahead := func(id uuid.UUID) {
		run(t, d, `UPDATE mailings SET last_attempt = now() + interval '1 h', updated_at = now() + interval '1 h', counted_at = now() + interval '1 h' WHERE id = $1`, id)
	}
	lock(silent, mailing.Locked)
	lock(live, mailing.Locked)
	ahead(silent)
	lock(silent, mailing.Locked)
	lock(live, mailing.Held)
	ahead(silent)
	ahead(dropped)
	run(t, d, `DELETE FROM email_outbox WHERE payload ->> 'mailingId' = $1`, dropped.String())
	open, err := d.Store.OpenMailings(t.Context())
	must(t, err)
	for _, m := range open {
		if m.ID == silent && m.Age() < 30*time.Minute {
			t.Errorf("counted %s ago", m.Age())
		}
	}
	recovered, _, err := d.Store.RecoverMailings(t.Context(), time.Minute, 2*time.Minute)
	must(t, err)
	var ids []uuid.UUID
	for _, m := range recovered {
		ids = append(ids, m.ID)
	}
	if !slices.Equal(ids, []uuid.UUID{silent, dropped}) {
		t.Errorf("recovered %v, want %s and %s", ids, silent, dropped)
	}
}
