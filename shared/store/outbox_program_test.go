package store_test

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// reminderAbout is the email of storetest.NewEmail as a program passes it.
func reminderAbout(company uuid.UUID, about outbox.Aggregate) outbox.ProgramEmail {
	return outbox.ProgramEmail{
		CompanyID: company, Aggregate: about, TTL: 24 * time.Hour, RequestID: "req-1",
		Body: []byte(`{"to": "ana@example.com", "subject": "Sua fatura está disponível", "html": "<p>Olá, sua fatura chegou.</p>",
			"recipient": {"externalId": "CUST-1", "nome": "Ana", "email": "ana@example.com"}}`),
	}
}

func programEmail(t *testing.T, d storetest.Database, company uuid.UUID, about outbox.Aggregate) uuid.UUID {
	t.Helper()
	done, err := outbox.EnqueueIn(t.Context(), d.SQL, reminderAbout(company, about))
	if err != nil || !done.Done {
		t.Fatalf("%+v, %v", done, err)
	}
	return done.ID
}

// rowOf is a whole row, but for what no two can share.
func rowOf(t *testing.T, d storetest.Database, query string, id uuid.UUID) map[string]any {
	t.Helper()
	var r map[string]any
	if err := json.Unmarshal([]byte(ask[string](t, d, query, id)), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// A program's row is the same as the api's, except for the columns of the HTML check.
func TestEnqueueIn_WritesWhatAcceptDoes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	accepted := d.Accept(t, company, func(e *outbox.NewEmail) {
		e.Aggregate = &outbox.Aggregate{Type: "interview", ID: "1", EventType: "REMINDER"}
		e.RequestID, e.Job.RequestID = "req-1", "req-1"
	})
	enqueued := programEmail(t, d, company, outbox.Aggregate{Type: "interview", ID: "2", EventType: "REMINDER"})
	const (
		row   = `SELECT to_jsonb(o) - '{payload,id,aggregate_id,created_at,next_at,expires_at,checker_version}'::text[] FROM email_outbox o WHERE id = $1`
		body  = `SELECT payload - '{outboxId,htmlRef}'::text[] FROM email_outbox WHERE id = $1`
		times = `SELECT jsonb_build_object('waits', extract(epoch FROM next_at - created_at) < 5, 'lives', extract(epoch FROM expires_at - next_at),
			'ref', payload ->> 'htmlRef' = id::text AND payload ->> 'outboxId' = id::text) FROM email_outbox WHERE id = $1`
	)
	for _, query := range []string{row, times} {
		if diff := cmp.Diff(rowOf(t, d, query, accepted), rowOf(t, d, query, enqueued)); diff != "" {
			t.Errorf("(-accepted +enqueued)\n%s", diff)
		}
	}
	if diff := cmp.Diff(rowOf(t, d, body, accepted), rowOf(t, d, body, enqueued)); diff != "" {
		t.Errorf("payload (-accepted +enqueued)\n%s", diff)
	}
	var job email.SendJob
	if err := json.Unmarshal([]byte(ask[string](t, d, `SELECT payload FROM email_outbox WHERE id = $1`, enqueued)), &job); err != nil || job.OutboxID != enqueued.String() {
		t.Errorf("%+v, %v", job, err)
	}
}

// A program's cancel writes outbox row, log and event like Advance.
func TestCancelIn_WritesWhatAdvanceDoes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	about := func(id string) outbox.Aggregate {
		return outbox.Aggregate{Type: "interview", ID: id, EventType: "REMINDER"}
	}
	for name, prepare := range map[string]func(id uuid.UUID){
		"untouched": func(uuid.UUID) {},
		"tried once": func(id uuid.UUID) {
			token := uuid.New()
			storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "CUST-1"), retryOf(id, token, time.Minute))
		},
	} {
		t.Run(name, func(t *testing.T) {
			one, other := programEmail(t, d, company, about(name[:4]+"-1")), programEmail(t, d, company, about(name[:4]+"-2"))
			prepare(one)
			prepare(other)
			storetest.Apply(t, d, storetest.CancelOf(one))
			done, err := outbox.CancelIn(t.Context(), d.SQL, company, about(name[:4]+"-2"))
			if err != nil || len(done) != 1 || !done[0].Done {
				t.Fatalf("%+v, %v", done, err)
			}
			for _, query := range []string{
				`SELECT to_jsonb(o) - '{id,aggregate_id,payload,created_at,next_at,expires_at,processed_at,claim_token,enqueued_at}'::text[] FROM email_outbox o WHERE id = $1`,
				`SELECT jsonb_build_object('processed', processed_at IS NOT NULL, 'token', claim_token IS NULL, 'lease', lease_until IS NULL) FROM email_outbox WHERE id = $1`,
				`SELECT to_jsonb(l) - '{outbox_id,created_at,expires_at,recipient_id}'::text[] FROM email_logs l WHERE outbox_id = $1`,
				`SELECT jsonb_object_agg(seq, to_jsonb(e) - '{email_log_id,created_at,metadata}'::text[]) FROM email_events e WHERE email_log_id = $1`,
			} {
				if diff := cmp.Diff(rowOf(t, d, query, one), rowOf(t, d, query, other)); diff != "" {
					t.Errorf("(-advance +cancel)\n%s", diff)
				}
			}
		})
	}
}

// A program keeps its transaction open. A statement that would claim or expire its email
// skips it and reports so at once, and the others of its group proceed; then the move is applied.
func TestAdvance_SkipsEmailsOfAnOpenTransaction(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	about := outbox.Aggregate{Type: "interview", ID: "42", EventType: "REMINDER"}
	held, neighbour := programEmail(t, d, company, about), d.Accept(t, company, nil)
	free := programEmail(t, d, company, outbox.Aggregate{Type: "interview", ID: "43", EventType: "REMINDER"})
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	at := time.Now().Add(time.Hour)
	if done, err := outbox.RescheduleIn(t.Context(), tx, company, about, at, time.Hour); err != nil || !done.Done {
		t.Fatalf("%+v, %v", done, err)
	}
	claim := func(id uuid.UUID) outbox.Transition {
		c := storetest.ClaimOf(company, id, uuid.New(), "C")
		c.GiveWay = id != neighbour
		return c
	}
	advanced, err := d.Store.AdvanceAll(t.Context(), company, []outbox.Transition{claim(held), claim(neighbour), claim(free)})
	if err != nil || advanced[0].Applied || advanced[0].Status != "" || !advanced[1].Applied || !advanced[2].Applied {
		t.Fatalf("%+v, %v", advanced, err)
	}
	if due := take(t, d, 10); len(due) != 0 {
		t.Errorf("the dispatcher took %v", idsOf(due))
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := outcomeOf(t, d, claim(held)); got.Applied || got.Status != email.Pending {
		t.Errorf("claimed an hour early: %+v", got)
	}
	run(t, d, `UPDATE email_outbox SET next_at = now() WHERE id = $1`, held)
	if got := outcomeOf(t, d, claim(held)); !got.Applied {
		t.Errorf("when it is due: %+v", got)
	}
}

// A program's cancel and a worker's claim run concurrently: exactly one of them is applied, and both return which.
func TestCancelIn_AgainstTheClaim(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for range 50 {
		about := outbox.Aggregate{Type: "interview", ID: uuid.NewString(), EventType: "REMINDER"}
		id := programEmail(t, d, company, about)
		claim := storetest.ClaimOf(company, id, uuid.New(), "C")
		claim.GiveWay = true
		var claimed outbox.Advanced
		var cancelled []outbox.ProgramResult
		errs := make([]error, 2)
		var group sync.WaitGroup
		group.Go(func() { claimed, errs[0] = d.Store.Advance(t.Context(), claim) })
		group.Go(func() { cancelled, errs[1] = outbox.CancelIn(t.Context(), d.SQL, company, about) })
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		want := email.Processing
		if cancelled[0].Done {
			want = email.Cancelled
		}
		if claimed.Applied && cancelled[0].Done || cancelled[0].Status != want && (claimed.Applied || cancelled[0].Done) {
			t.Fatalf("%+v and %+v", claimed, cancelled)
		}
		if now := ask[email.Status](t, d, `SELECT status FROM email_outbox WHERE id = $1`, id); claimed.Applied != (now == email.Processing) {
			t.Fatalf("%s after %+v and %+v", now, claimed, cancelled)
		}
	}
}

// Two programs and the api that cancel the same emails in a different order do not deadlock.
func TestCancelIn_ManyAtOnce(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	var withdrawals []outbox.Transition
	for _, event := range []string{"C", "A", "B"} {
		id := programEmail(t, d, company, outbox.Aggregate{Type: "interview", ID: "42", EventType: event})
		withdrawals = append(withdrawals, storetest.CancelOf(id))
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			done, err := outbox.CancelIn(t.Context(), d.SQL, company, outbox.Aggregate{Type: "interview", ID: "42"})
			if err != nil || len(done) != 3 {
				t.Errorf("%+v, %v", done, err)
			}
		})
		group.Go(func() {
			if _, err := d.Store.AdvanceAll(t.Context(), company, withdrawals); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := ask[int](t, d, `SELECT count(*) FROM email_events WHERE type = 'CANCELLED'`); n != 3 {
		t.Errorf("%d were cancelled, want each once", n)
	}
}
