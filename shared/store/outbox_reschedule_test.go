package store_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// moveOf is a request to move an email, as the api makes it; a zero time is now.
func moveOf(company, id uuid.UUID, at time.Time, ttl time.Duration) outbox.Move {
	return outbox.Move{
		CompanyID: company, ID: id, SendAt: at, TTL: ttl, At: time.Now().UTC(), By: map[string]any{"by": "api", "keyId": "k1"},
	}
}

// An email's deadline moves with it. That of a mailing has none before its first attempt, and gets none, also after a replay or a
// released claim.
func TestReschedule_Deadline(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	at := time.Now().Add(48 * time.Hour).Truncate(time.Second)
	const behind, none = `expires_at = next_at + interval '2 hours'`, `expires_at > now() + interval '9 years'`
	for name, tt := range map[string]struct {
		ofMailing bool
		want      string
		before    func(company, id uuid.UUID) []outbox.Transition
	}{
		"single": {false, behind, func(uuid.UUID, uuid.UUID) []outbox.Transition { return nil }},
		"single, replayed": {false, behind, func(_, id uuid.UUID) []outbox.Transition {
			return []outbox.Transition{storetest.CancelOf(id), storetest.ReplayOf(id)}
		}},
		"of a mailing": {true, none, func(uuid.UUID, uuid.UUID) []outbox.Transition { return nil }},
		"of a mailing, replayed": {true, none, func(company, id uuid.UUID) []outbox.Transition {
			token := uuid.New()
			return []outbox.Transition{firstClaimOf(company, id, token), storetest.FailedOf(id, token), storetest.ReplayOf(id)}
		}},
		"of a mailing, released": {true, none, func(company, id uuid.UUID) []outbox.Transition {
			token := uuid.New()
			return []outbox.Transition{firstClaimOf(company, id, token), releaseOf(id, token)}
		}},
		"of a mailing, tried": {true, behind, func(company, id uuid.UUID) []outbox.Transition {
			token := uuid.New()
			return []outbox.Transition{firstClaimOf(company, id, token), retryOf(id, token, 0)}
		}},
	} {
		company := d.Company(t)
		id := d.Accept(t, company, nil)
		if tt.ofMailing {
			storetest.OfMailing(t, d, company, id)
		}
		storetest.Apply(t, d, tt.before(company, id)...)
		if tt.want == none && !ask[bool](t, d, `SELECT `+none+` FROM email_outbox WHERE id = $1`, id) {
			t.Errorf("%s: there is a deadline before the move", name)
		}
		if done, err := d.Store.Reschedule(t.Context(), moveOf(company, id, at, 2*time.Hour)); err != nil || !done.Applied || done.Status != email.Pending {
			t.Fatalf("%s: %+v, %v", name, done, err)
		}
		if !ask[bool](t, d, `SELECT next_at = $2 AND `+tt.want+` FROM email_outbox WHERE id = $1`, id, at) {
			t.Errorf("%s: not %s", name, tt.want)
		}
	}
}

// A worker of the previous release has released a claim, and left the deadline of the attempt: a move is not behind it.
func TestReschedule_NotBehindTheDeadline(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, nil)
	storetest.OfMailing(t, d, company, id)
	run(t, d, `UPDATE email_outbox SET expires_at = now() + interval '1 hour'`)
	reschedule(t, d, company, id, time.Now().Add(48*time.Hour))
	if !ask[bool](t, d, `SELECT expires_at > next_at FROM email_outbox`) {
		t.Error("the email expires before the time that it was moved to")
	}
}

// firstClaimOf returns a claim as a worker makes it, which gives an email of a mailing its deadline.
func firstClaimOf(company, id, token uuid.UUID) outbox.Transition {
	claim := storetest.ClaimOf(company, id, token, "C")
	claim.Renew = time.Hour
	return claim
}

// An email of another company is not found.
func TestReschedule_OfAnother(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	id := d.Accept(t, d.Company(t), nil)
	if _, err := d.Store.Reschedule(t.Context(), moveOf(d.Company(t), id, time.Time{}, time.Hour)); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
}

// A move and a claim run concurrently: exactly one is applied, and no email is claimed before its new time.
func TestReschedule_AgainstTheClaim(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for range 50 {
		id := d.Accept(t, company, nil)
		claimed := make(chan outbox.Advanced)
		go func() {
			got, err := d.Store.Advance(t.Context(), storetest.ClaimOf(company, id, uuid.New(), "C"))
			if err != nil {
				t.Error(err)
			}
			claimed <- got
		}()
		moved, err := d.Store.Reschedule(t.Context(), moveOf(company, id, time.Now().Add(time.Hour), time.Hour))
		if claim := <-claimed; err != nil || claim.Applied == moved.Applied {
			t.Fatalf("claimed %+v, moved %+v, %v", claim, moved, err)
		}
	}
}

// reschedule moves an email and fails the test if it cannot.
func reschedule(t *testing.T, d storetest.Database, company, id uuid.UUID, at time.Time) {
	t.Helper()
	if done, err := d.Store.Reschedule(t.Context(), moveOf(company, id, at, 24*time.Hour)); err != nil || !done.Applied {
		t.Fatalf("%+v, %v", done, err)
	}
}

// Each move that changes the time is an event with both times and who asked for it, the
// first one too. The log has the new deadline, and a claim goes on behind it.
func TestReschedule_WritesEvents(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	first, second := time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC(), time.Now().Add(72*time.Hour).Truncate(time.Millisecond).UTC()
	for name, id := range map[string]uuid.UUID{
		"due": d.Accept(t, company, nil), "scheduled": d.Accept(t, company, func(e *outbox.NewEmail) { e.SendAt = time.Now().Add(48 * time.Hour) }),
	} {
		was := ask[time.Time](t, d, `SELECT next_at FROM email_outbox WHERE id = $1`, id)
		reschedule(t, d, company, id, first)
		reschedule(t, d, company, id, first) // the second move to the same time has no effect
		reschedule(t, d, company, id, second)
		if !ask[bool](t, d, `SELECT o.expires_at = l.expires_at AND l.status = 'PENDING' AND l.event_seq = 2 AND l.last_event = 'RESCHEDULED'
			FROM email_outbox o JOIN email_logs l ON l.outbox_id = o.id WHERE o.id = $1`, id) {
			t.Errorf("%s: the log was not updated: %v", name, logged(t, d, id))
		}
		reschedule(t, d, company, id, time.Time{})
		reschedule(t, d, company, id, time.Time{}) // due already
		token := uuid.New()
		storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), retryOf(id, token, time.Minute))
		reschedule(t, d, company, id, second)
		storetest.Apply(t, d, storetest.CancelOf(id))
		events, err := d.Store.Timeline(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		var types []email.EventType
		for _, e := range events {
			types = append(types, e.Type)
		}
		want := []email.EventType{
			email.EventRescheduled, email.EventRescheduled, email.EventRescheduled, email.EventReceived, email.EventValidated, email.EventSentAttempt,
			email.EventRetryScheduled, email.EventRescheduled, email.EventCancelled,
		}
		if diff := cmp.Diff(want, types); diff != "" {
			t.Fatalf("%s: %s", name, diff)
		}
		var metadata struct {
			By, KeyID            string
			OldSendAt, NewSendAt time.Time
		}
		for seq, times := range [][2]time.Time{{was, first}, {first, second}} {
			if err := json.Unmarshal(events[seq].Metadata, &metadata); err != nil {
				t.Fatal(err)
			}
			if metadata.By != "api" || metadata.KeyID != "k1" || !metadata.OldSendAt.Equal(times[0].Truncate(time.Millisecond)) || !metadata.NewSendAt.Equal(times[1]) {
				t.Errorf("%s: event %d: %+v, want from %v to %v", name, seq+1, metadata, times[0], times[1])
			}
		}
	}
}

// A program's move writes outbox row, log and event as the api's does.
func TestRescheduleIn_WritesWhatRescheduleDoes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	about := func(id string) outbox.Aggregate {
		return outbox.Aggregate{Type: "interview", ID: id, EventType: "REMINDER"}
	}
	at := time.Now().Add(5 * time.Hour).Truncate(time.Second)
	for name, prepare := range map[string]func(id uuid.UUID){
		"untouched": func(uuid.UUID) {},
		"tried once": func(id uuid.UUID) {
			token := uuid.New()
			storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "CUST-1"), retryOf(id, token, time.Minute))
		},
		"moved before": func(id uuid.UUID) { reschedule(t, d, company, id, at.Add(time.Hour)) },
	} {
		one, other := programEmail(t, d, company, about(name[:4]+"-1")), programEmail(t, d, company, about(name[:4]+"-2"))
		prepare(one)
		prepare(other)
		for range 2 {
			reschedule(t, d, company, one, at)
			done, err := outbox.RescheduleIn(t.Context(), d.SQL, company, about(name[:4]+"-2"), at, 24*time.Hour)
			if err != nil || !done.Done || done.Status != email.Pending {
				t.Fatalf("%s: %+v, %v", name, done, err)
			}
		}
		for _, query := range []string{
			`SELECT to_jsonb(o) - '{id,aggregate_id,payload,created_at,claim_token,enqueued_at}'::text[] FROM email_outbox o WHERE id = $1`,
			`SELECT to_jsonb(l) - '{outbox_id,created_at,recipient_id}'::text[] FROM email_logs l WHERE outbox_id = $1`,
			`SELECT jsonb_object_agg(seq, to_jsonb(e) - '{email_log_id,created_at,metadata}'::text[] || jsonb_build_object('to', metadata -> 'newSendAt')) FROM email_events e WHERE email_log_id = $1`,
			`SELECT jsonb_build_object('old', bool_and((metadata ->> 'oldSendAt')::timestamptz < now() + interval '7 hours')) FROM email_events WHERE email_log_id = $1 AND type = 'RESCHEDULED'`,
		} {
			if diff := cmp.Diff(rowOf(t, d, query, one), rowOf(t, d, query, other)); diff != "" {
				t.Errorf("%s (-api +program)\n%s", name, diff)
			}
		}
		if by := ask[string](t, d, `SELECT metadata ->> 'by' FROM email_events WHERE email_log_id = $1 ORDER BY seq DESC LIMIT 1`, other); by != "program" {
			t.Errorf("%s: by %s", name, by)
		}
	}
}
