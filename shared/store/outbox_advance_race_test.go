package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// Of concurrent claims of one email, in any number of processes, exactly one is applied.
func TestAdvance_OneOfManyClaimsWins(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	advancers := []*outbox.Advancer{
		d.Store.NewAdvancer(), open(t, d.URL, store.Options{}).NewAdvancer(), open(t, d.URL, store.Options{}).NewAdvancer(),
	}
	for range 10 {
		id := d.Accept(t, company, nil)
		var won, same atomic.Int64
		var winner atomic.Value
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range 64 {
			token := uuid.New()
			wg.Go(func() {
				<-start
				claim := storetest.ClaimOf(company, id, token, "C")
				got, err := advancers[i%len(advancers)].Advance(t.Context(), claim)
				for err == nil && got.Locked { // by the one that wins
					got, err = advancers[i%len(advancers)].Advance(t.Context(), claim)
				}
				switch {
				case err != nil:
					t.Error(err)
				case got.Applied:
					won.Add(1)
					winner.Store(token)
				case got.SameToken:
					same.Add(1)
				case got.Status != email.Processing:
					t.Errorf("a claim that was not applied returned %+v", got)
				}
			})
		}
		close(start)
		wg.Wait()
		if won.Load() != 1 || same.Load() != 0 {
			t.Fatalf("%d claims were applied, %d were recognized as repeated; want 1 and 0", won.Load(), same.Load())
		}
		if holder := ask[string](t, d, `SELECT claim_token FROM email_outbox WHERE id = $1`, id); holder != winner.Load().(uuid.UUID).String() {
			t.Errorf("the row has the claim %s, but the applied claim is %s", holder, winner.Load())
		}
		if got := storetest.Timeline(t, d, id); got != attempted {
			t.Error(got)
		}
	}
}

// A claim and a cancel of the same email, in one group or not: one of them is applied, and the other returns the new status.
func TestAdvance_ClaimAgainstCancel(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	advancers := []*outbox.Advancer{d.Store.NewAdvancer(), open(t, d.URL, store.Options{}).NewAdvancer()}
	const n = 200
	ids := make([]uuid.UUID, n)
	applied := make([]atomic.Int64, n)
	for i := range ids {
		ids[i] = d.Accept(t, company, nil)
	}
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i, id := range ids {
		for j, transition := range []outbox.Transition{storetest.ClaimOf(company, id, uuid.New(), "C"), storetest.CancelOf(id)} {
			wg.Go(func() {
				<-start
				got, err := advancers[i*j%2].Advance(t.Context(), transition)
				if err != nil {
					t.Error(err)
				}
				if got.Applied {
					applied[i].Add(1)
				}
			})
		}
	}
	close(start)
	wg.Wait()
	for i, id := range ids {
		if applied[i].Load() != 1 {
			t.Errorf("%d transitions applied", applied[i].Load())
		}
		status, story := readOutbox(t, d, id).Status, storetest.Timeline(t, d, id)
		if end := status + " after " + story; end != "CANCELLED after CANCELLED" && end != "PROCESSING after "+attempted {
			t.Errorf("%s after %s", status, story)
		}
	}
}

// The guard is evaluated on the locked row, not on the row as it was when the statement began.
func TestAdvance_DecidesOnTheLockedRow(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		meanwhile string
		want      outbox.Advanced
	}{
		"cancelled":  {`UPDATE email_outbox SET status = 'CANCELLED', processed_at = now()`, outbox.Advanced{Status: email.Cancelled}},
		"expired":    {`UPDATE email_outbox SET expires_at = now()`, outbox.Advanced{Status: email.Pending}},
		"put off":    {`UPDATE email_outbox SET next_at = now() + interval '1 h'`, outbox.Advanced{Status: email.Pending}},
		"enqueued":   {`UPDATE email_outbox SET status = 'ENQUEUED', attempts = 3, throttles = 2`, outbox.Advanced{Applied: true, Status: email.Processing, Attempts: 4, Throttles: 2}},
		"only held":  {`SELECT 1`, outbox.Advanced{Applied: true, Status: email.Processing, Attempts: 1}},
		"taken away": {`DELETE FROM email_outbox`, outbox.Advanced{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company := d.Company(t)
			id := d.Accept(t, company, nil)
			got := advanceWhile(t, d, storetest.ClaimOf(company, id, uuid.New(), "C"), func(tx *sql.Tx) error {
				_, err := tx.ExecContext(t.Context(), tt.meanwhile)
				return err
			})
			got.LeaseUntil = time.Time{}
			if got.Applied != (got.CompanyID == company && got.RequestID != "") {
				t.Errorf("applied %v, named %s of %s", got.Applied, got.RequestID, got.CompanyID)
			}
			got.CompanyID, got.RequestID = uuid.Nil, ""
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// advanceWhile lets a transition begin while another transaction holds the email's
// row and then changes and commits it.
func advanceWhile(t *testing.T, d storetest.Database, transition outbox.Transition, change func(*sql.Tx) error) outbox.Advanced {
	t.Helper()
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM email_outbox WHERE id = $1 FOR UPDATE`, transition.ID); err != nil {
		t.Fatal(err)
	}
	var got outbox.Advanced
	var wg sync.WaitGroup
	wg.Go(func() {
		var err error
		if got, err = d.Store.Advance(t.Context(), transition); err != nil {
			t.Error(err)
		}
	})
	storetest.WaitBlocked(t, d, 1)
	if err := errors.Join(change(tx), tx.Commit()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	return got
}

// While a transition waits for the row, other transactions may write the email's log. The transition appends to their events.
func TestAdvance_ReadsTheLogAsItIsUnderTheLock(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	write := func(tx *sql.Tx, id uuid.UUID, status string, seq int, previous sql.NullString, event string) error {
		_, err := tx.ExecContext(t.Context(), `
			WITH o AS (UPDATE email_outbox SET status = $2, processed_at = CASE WHEN $2 = 'CANCELLED' THEN now() END, lease_until = NULL WHERE id = $1 RETURNING *),
			e AS (INSERT INTO email_events (email_log_id, seq, previous, type, created_at) VALUES ($1, $3, $4, $5, now())),
			d AS (INSERT INTO dead_letters (id, outbox_id, target, reason, payload) VALUES (gen_random_uuid(), $1, 'email:send', 'X', '{}'))
			INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, event_seq, last_event)
			SELECT id, company_id, 'a', 's', status, attempts, request_id, expires_at, created_at, $3, $5 FROM o
			ON CONFLICT (outbox_id) DO UPDATE SET status = excluded.status, event_seq = excluded.event_seq, last_event = excluded.last_event`,
			id, status, seq, previous, event)
		return err
	}
	t.Run("first event", func(t *testing.T) {
		id := d.Accept(t, company, nil)
		// A cancel has locked the row. The replay that waits for it finds a cancelled email whose log is not in its snapshot.
		run(t, d, `UPDATE email_outbox SET status = 'FAILED', processed_at = now() WHERE id = $1`, id)
		got := advanceWhile(t, d, storetest.ReplayOf(id), func(tx *sql.Tx) error { return write(tx, id, "CANCELLED", 1, sql.NullString{}, "CANCELLED") })
		if !got.Applied || storetest.Timeline(t, d, id) != "CANCELLED REPLAYED" {
			t.Errorf("%+v, %s", got, storetest.Timeline(t, d, id))
		}
		if n := ask[int](t, d, `SELECT count(*) FROM dead_letters WHERE outbox_id = $1 AND resolved_at IS NULL`, id); n != 0 {
			t.Errorf("%d dead letters stayed open", n)
		}
	})
	t.Run("further event", func(t *testing.T) {
		id, _ := inStatus(t, d, company, email.Processing)
		got := advanceWhile(t, d, storetest.ClaimOf(company, id, uuid.New(), "C"), func(tx *sql.Tx) error {
			return write(tx, id, "PENDING", 4, sql.NullString{String: "SENT_ATTEMPT", Valid: true}, "RELEASED")
		})
		if want := attempted + " RELEASED " + attempted; !got.Applied || storetest.Timeline(t, d, id) != want {
			t.Errorf("%+v, %s", got, storetest.Timeline(t, d, id))
		}
	})
}

// An acceptance by the provider is always recorded, whatever the email's status is by then.
func TestAdvance_LateAcceptance(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for name, after := range map[string]func(id, token uuid.UUID) []outbox.Transition{
		"retry": func(id, token uuid.UUID) []outbox.Transition {
			return []outbox.Transition{retryOf(id, token, time.Hour)}
		},
		"release": func(id, token uuid.UUID) []outbox.Transition { return []outbox.Transition{releaseOf(id, token)} },
		"unknown": func(id, token uuid.UUID) []outbox.Transition {
			return []outbox.Transition{storetest.EndOf(id, token, email.OutcomeUnknown, storetest.Event(email.EventOutcomeUnknown, nil))}
		},
		"failed": func(id, token uuid.UUID) []outbox.Transition {
			return []outbox.Transition{storetest.FailedOf(id, token)}
		},
		"cancelled": func(id, token uuid.UUID) []outbox.Transition {
			return []outbox.Transition{retryOf(id, token, 0), storetest.CancelOf(id)}
		},
		"suppressed": func(id, token uuid.UUID) []outbox.Transition {
			return []outbox.Transition{retryOf(id, token, 0), suppressOf(id)}
		},
		"replayed": func(id, token uuid.UUID) []outbox.Transition {
			return []outbox.Transition{storetest.FailedOf(id, token), storetest.ReplayOf(id)}
		},
		"next attempt": func(id, token uuid.UUID) []outbox.Transition {
			return []outbox.Transition{retryOf(id, token, 0), storetest.ClaimOf(company, id, uuid.New(), "C")}
		},
	} {
		id, token := inStatus(t, d, company, email.Processing)
		storetest.Apply(t, d, after(id, token)...)
		storetest.Apply(t, d, storetest.SentOf(id, token))
		e, err := d.Store.FindEmail(t.Context(), company, id)
		if err != nil || e.Status != email.Sent || e.SentAt == nil || e.FailedAt != nil || e.ErrorCode != nil || e.ErrorReason != nil {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
		if n := ask[int](t, d, `SELECT count(*) FROM dead_letters WHERE outbox_id = $1 AND resolved_at IS NULL`, id); n != 0 {
			t.Errorf("%s: %d open dead letters of an email that was sent", name, n)
		}
		if story := storetest.Timeline(t, d, id); !strings.HasSuffix(story, " SENT") {
			t.Errorf("%s: %s", name, story)
		}
	}
}

// The rejection of an earlier attempt changes nothing.
func TestAdvance_StaleRefusalChangesNothing(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id, old := inStatus(t, d, company, email.RetryScheduled)
	storetest.Apply(t, d, storetest.ClaimOf(company, id, uuid.New(), "C"))
	story := storetest.Timeline(t, d, id)
	for _, stale := range []outbox.Transition{storetest.FailedOf(id, old), retryOf(id, old, 0), releaseOf(id, old)} {
		got, err := d.Store.Advance(t.Context(), stale)
		if err != nil || got.Applied || got.SameToken || got.Status != email.Processing {
			t.Errorf("%s: %+v, %v", stale.Status, got, err)
		}
	}
	if r := readOutbox(t, d, id); r.Attempts != 2 || storetest.Timeline(t, d, id) != story {
		t.Errorf("%+v, %s", r, storetest.Timeline(t, d, id))
	}
}

// A write whose response was lost is repeated: it is applied once, and the repetition returns SameToken.
func TestAdvance_Repeated(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for name, end := range map[string]func(id, token uuid.UUID) outbox.Transition{
		"sent": storetest.SentOf, "failed": storetest.FailedOf, "release": releaseOf,
		"retry": func(id, token uuid.UUID) outbox.Transition { return retryOf(id, token, time.Hour) },
		"claim": func(id, token uuid.UUID) outbox.Transition { return storetest.ClaimOf(company, id, token, "C") },
	} {
		id, token := d.Accept(t, company, nil), uuid.New()
		if name != "claim" {
			storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"))
		}
		transition := end(id, token)
		storetest.Apply(t, d, transition)
		row, story := readOutbox(t, d, id), storetest.Timeline(t, d, id)
		got, err := d.Store.Advance(t.Context(), transition)
		if err != nil || got.Applied || !got.SameToken || got.Status != transition.Status {
			t.Errorf("%s again: %+v, %v", name, got, err)
		}
		if again := readOutbox(t, d, id); again.Attempts != row.Attempts || storetest.Timeline(t, d, id) != story {
			t.Errorf("%s was applied twice: %+v, %s", name, again, storetest.Timeline(t, d, id))
		}
	}
}

// The database rejects a transition that is not in the diagram, and no other of its group.
func TestAdvance_ABadTransitionFailsAlone(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	advancer := d.Store.NewAdvancer()
	bad := map[int]func(*outbox.Transition){
		7:  func(t *outbox.Transition) { t.Events = []email.Event{storetest.Event(email.EventValidated, nil)} },
		8:  func(t *outbox.Transition) { t.Events = nil },
		30: func(t *outbox.Transition) { t.AddAttempts = -1 },
		31: func(t *outbox.Transition) { t.Status = "UNHEARD_OF" },
		32: func(t *outbox.Transition) { t.Events[0].Metadata = map[string]any{"cannot be JSON": make(chan int)} },
		99: func(t *outbox.Transition) { t.Token = uuid.Nil },
	}
	const n = 120
	ids := make([]uuid.UUID, n)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		ids[i] = d.Accept(t, company, nil)
		transition := storetest.ClaimOf(company, ids[i], uuid.New(), fmt.Sprint("C-", i))
		if spoil := bad[i]; spoil != nil {
			spoil(&transition)
		}
		wg.Go(func() {
			<-start
			got, err := advancer.Advance(t.Context(), transition)
			if spoilt := bad[i] != nil; spoilt != (err != nil) || spoilt == got.Applied {
				t.Errorf("transition %d: %+v, %v", i, got, err)
			}
		})
	}
	close(start)
	wg.Wait()
	for i, id := range ids {
		want := attempted
		if bad[i] != nil {
			want = ""
		}
		if got := storetest.Timeline(t, d, id); got != want {
			t.Errorf("email %d: %s", i, got)
		}
	}
}

// A caller whose context ends does not abort the other transitions of its group.
func TestAdvancer_CallerGoesAway(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, nil)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `LOCK TABLE email_outbox`); err != nil { // a row's lock is not waited for
		t.Fatal(err)
	}
	advancer := d.Store.NewAdvancer()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := advancer.Advance(ctx, storetest.CancelOf(id))
		result <- err
	}()
	storetest.WaitBlocked(t, d, 1)
	cancel()
	if err := <-result; !errors.Is(err, store.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
		t.Errorf("Advance returned %v, want ErrUnknownOutcome and Canceled", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	advancer.Close()
	if got := storetest.Timeline(t, d, id); got != "CANCELLED" {
		t.Errorf("the write in progress was not completed: %q", got)
	}
}
