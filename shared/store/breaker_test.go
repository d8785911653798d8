package store_test

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

const probePause = 5 * time.Second

func breakerOf(t *testing.T, d storetest.Database) breaker.Breaker {
	t.Helper()
	g, err := d.Store.Breaker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// openBreaker opens the circuit breaker as an attempt that was claimed while it was closed.
func openBreaker(t *testing.T, d storetest.Database, reason string) {
	t.Helper()
	done, err := d.Store.OpenBreaker(t.Context(), breaker.Opening{
		Reason: reason, By: "worker-1", Attempt: uuid.New(), Pass: breaker.Pass{Openings: breakerOf(t, d).Openings},
	})
	if err != nil || !done.Opened {
		t.Fatalf("opened: %v, %v", done, err)
	}
}

func pick(t *testing.T, d storetest.Database) (dispatch.Probe, bool) {
	t.Helper()
	probe, found, err := d.Store.PickProbe(t.Context(), email.Queues(), probePause, true)
	if err != nil {
		t.Fatal(err)
	}
	return probe, found
}

// later makes the last probe as old as a pause.
func later(t *testing.T, d storetest.Database) {
	t.Helper()
	run(t, d, `UPDATE provider_gate SET probe_at = probe_at - interval '5 s'`)
}

// Of all attempts that were in flight when the circuit breaker opened, one opened it, and reports so each
// time.
func TestOpenBreaker_OnceForAllInFlight(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	before := breaker.Pass{Openings: breakerOf(t, d).Openings}
	var openers atomic.Int64
	var one atomic.Value
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			w := breaker.Opening{Reason: "SES_ACCOUNT_SENDING_PAUSED", By: "worker-1", Attempt: uuid.New(), Pass: before}
			done, err := d.Store.OpenBreaker(t.Context(), w)
			if err != nil {
				t.Error(err)
			}
			if done.Opened {
				openers.Add(1)
				one.Store(w)
			}
		})
	}
	group.Wait()
	if n := openers.Load(); n != 1 {
		t.Fatalf("%d attempts opened it, want 1", n)
	}
	again, err := d.Store.OpenBreaker(t.Context(), one.Load().(breaker.Opening))
	if err != nil || !again.Opened {
		t.Errorf("OpenBreaker repeated by the attempt that opened it: %v, %v; want true, as its response may have been lost", again, err)
	}
	g := breakerOf(t, d)
	if !g.IsOpen || g.Reason == nil || *g.Reason != "SES_ACCOUNT_SENDING_PAUSED" || g.Openings != before.Openings+1 || g.ChangedBy == nil {
		t.Errorf("circuit breaker = %+v", g)
	}

	// A probe closes it. A call that was in flight all the time does not open it again.
	probe := breaker.Pass{Probe: true, Openings: g.Openings}
	was, opened, err := d.Store.CloseBreaker(t.Context(), breaker.Closing{By: "worker-2", Pass: probe, Accepted: true})
	if err != nil || !opened || was.Reason != "SES_ACCOUNT_SENDING_PAUSED" {
		t.Fatalf("open: %+v, %v, %v", was, opened, err)
	}
	if _, opened, err = d.Store.CloseBreaker(t.Context(), breaker.Closing{By: "worker-2", Pass: probe, Accepted: true}); err != nil || opened {
		t.Errorf("opened twice: %v, %v", opened, err)
	}
	late, err := d.Store.OpenBreaker(t.Context(), breaker.Opening{Reason: "X", By: "worker-1", Attempt: uuid.New(), Pass: before})
	if err != nil || late.Opened || breakerOf(t, d).IsOpen {
		t.Errorf("a call that began before the probe opened the circuit breaker: %v, %v", late, err)
	}
	openBreaker(t, d, "SES_TIMEOUT")
	if _, opened, err = d.Store.CloseBreaker(t.Context(), breaker.Closing{By: "worker-2", Pass: probe, Accepted: true}); err != nil || opened {
		t.Errorf("a probe of an earlier opening opened the circuit breaker: %v, %v", opened, err)
	}
}

// A refusal that may concern its keys alone opens the circuit breaker, until an accepted email with other keys shows that it
// does not concern the account, and then not until an hour without such refusals has passed, or one of the keys was accepted.
func TestOpenBreaker_RefusalKeys(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	refuse := func(when string, want breaker.Opened, keys ...string) {
		t.Helper()
		got, err := d.Store.OpenBreaker(t.Context(), breaker.Opening{
			Reason: "SES_ACCESS_DENIED", By: "worker-1", Attempt: uuid.New(), Pass: breaker.Pass{Openings: breakerOf(t, d).Openings}, Keys: keys,
		})
		if err != nil || got != want {
			t.Fatalf("%s: %+v, %v; want %+v", when, got, err, want)
		}
	}
	probe := func(accepted bool, keys ...string) {
		t.Helper()
		w := breaker.Closing{By: "worker-2", Pass: breaker.Pass{Probe: true, Openings: breakerOf(t, d).Openings}, Accepted: accepted, Keys: keys}
		if _, closed, err := d.Store.CloseBreaker(t.Context(), w); err != nil || !closed {
			t.Fatalf("close: %v, %v", closed, err)
		}
	}
	age := func(by string) { run(t, d, `UPDATE provider_refusals SET refused_at = refused_at - $1::interval`, by) }
	opened, probing, disproved := breaker.Opened{Opened: true}, breaker.Opened{Probing: true}, breaker.Opened{Disproved: true}

	refuse("the first", opened, "a@x", "x", "1")
	refuse("while the breaker is open", probing, "a@x", "x", "2")
	probe(false, "b@y", "y", "3")
	refuse("after a probe that was refused alone", opened, "a@x", "x", "1")
	probe(true, "a@x", "x", "4")
	refuse("after another email of the same sender", opened, "a@x", "x", "5")
	probe(true, "b@x", "x", "6")
	refuse("the address, while its domain is accepted", disproved, "a@x", "x", "7")
	refuse("the first email of the same sender, at another address", disproved, "c@x", "x", "1")
	refuse("another address of an accepted domain", opened, "d@x", "x", "8")
	probe(true, "b@y", "y", "9")
	refuse("the domain", disproved, "e@x", "x", "10")
	refuse("another sender", opened, "b@y", "y", "9")
	probe(true, "c@z", "z", "11")

	age("50 min")
	refuse("50 minutes later", disproved, "d@x", "x", "12")
	age("50 min")
	refuse("after 50 minutes more", disproved, "d@x", "x", "13")
	if err := d.Store.ForgetRefusals(t.Context(), []string{"d@x", "x", "14"}); err != nil {
		t.Fatal(err)
	}
	refuse("after it was accepted", opened, "d@x", "x", "13")
	probe(true, "c@z", "z", "15")
	age("61 min")
	refuse("after an hour without refusals", opened, "d@x", "x", "16")
	if n := ask[int](t, d, `SELECT count(*) FROM provider_refusals`); n != 3 {
		t.Errorf("%d refusals are kept, want the last one's 3 keys", n)
	}
	run(t, d, `UPDATE provider_refusals SET refused_at = now() + interval '2 h', disproved = true`)
	probe(false, "c@z", "z", "17")
	refuse("recorded by a clock that was ahead", opened, "d@x", "x", "18")
}

// After the commit that opens the circuit breaker, the fence lets the probe through and nothing else.
func TestClaim_WhileTheBreakerIsOpen(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	first, second := d.Accept(t, company, nil), d.Accept(t, company, nil)
	claim := func(id uuid.UUID) outbox.Advanced {
		return outcomeOf(t, d, storetest.ClaimOf(company, id, uuid.New(), "C"))
	}

	openBreaker(t, d, "SES_AUTH_FAILED")
	if got := claim(first); got.Applied || got.Status != email.Pending {
		t.Fatalf("claimed while the circuit breaker is open: %+v", got)
	}
	if lanes := liveLanes(t, d); len(lanes) != 0 {
		t.Errorf("live lanes %v", lanes)
	}
	if _, found := pick(t, d); found {
		t.Error("a probe right after the circuit breaker was opened")
	}
	later(t, d)
	probe, found := pick(t, d)
	if !found || probe.ID != first || probe.Queue != email.QueueNormal {
		t.Fatalf("probe %+v, %v; want the oldest, %s", probe, found, first)
	}
	if again, found := pick(t, d); found {
		t.Errorf("a second probe, %+v", again)
	}
	for id, want := range map[uuid.UUID]bool{first: true, second: false} {
		row, err := d.Store.NewLoader().Load(t.Context(), id)
		if err != nil || row.BreakerClosed != want || row.Probe != want {
			t.Errorf("loaded: circuit breaker closed %v, probe %v (%v), want %v", row.BreakerClosed, row.Probe, err, want)
		}
	}
	if got := claim(second); got.Applied {
		t.Error("another email was claimed beside the probe")
	}
	if got := claim(first); !got.Applied || !got.Breaker.Probe || got.Breaker.Openings != breakerOf(t, d).Openings {
		t.Errorf("the probe: %+v", got)
	}

	// The worker of the probe was killed: the next probe is another email.
	later(t, d)
	if probe, found = pick(t, d); !found || probe.ID != second {
		t.Errorf("next probe %+v, %v", probe, found)
	}
	if _, opened, err := d.Store.CloseBreaker(t.Context(), breaker.Closing{By: "w", Pass: breaker.Pass{Openings: breakerOf(t, d).Openings}, Accepted: true}); err != nil || !opened {
		t.Fatal(opened, err)
	}
	if got := claim(second); !got.Applied || got.Breaker.Probe {
		t.Errorf("while the circuit breaker is closed: %+v", got)
	}
}

func TestPickProbe_TakesTheOldestThatMaySendAtAll(t *testing.T) {
	t.Parallel()
	for name, inTheWay := range map[string]string{
		"nothing":           `SELECT 1`,
		"lane paused":       `UPDATE dispatch_lanes SET paused_at = now() WHERE company_id = $1`,
		"lane held":         `UPDATE dispatch_lanes SET held_at = now(), held_reason = 'r' WHERE company_id = $1`,
		"lane parked":       `UPDATE dispatch_lanes SET parked_until = now() + interval '1 h' WHERE company_id = $1`,
		"company suspended": `UPDATE companies SET suspended_at = now() WHERE id = $1`,
		"not due":           `UPDATE email_outbox SET next_at = now() + interval '1 h' WHERE company_id = $1`,
		"expired":           `UPDATE email_outbox SET expires_at = now() WHERE company_id = $1`,
		"in work":           `UPDATE email_outbox SET status = 'ENQUEUED' WHERE company_id = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			older, newer := d.Company(t), d.Company(t)
			young := d.Accept(t, newer, func(e *outbox.NewEmail) { e.Priority = 9 })
			old := d.Accept(t, older, nil)
			run(t, d, `UPDATE email_outbox SET next_at = now() - interval '1 min' WHERE id = $1`, old)
			if name != "nothing" {
				run(t, d, inTheWay, older)
			}
			openBreaker(t, d, "SES_TIMEOUT")
			later(t, d)
			want := young
			if name == "nothing" {
				want = old
			}
			if probe, found := pick(t, d); !found || probe.ID != want {
				t.Errorf("probe %+v, %v, want %s", probe, found, want)
			}
		})
	}
}

// A retry is a probe as soon as it is due. A probe that is never sent to the provider is replaced by the next.
func TestPickProbe_SkippedAndRetry(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, nil)
	run(t, d, `UPDATE email_outbox SET status = 'RETRY_SCHEDULED', next_at = now()`)
	openBreaker(t, d, "NETWORK_ERROR")
	later(t, d)
	if probe, found := pick(t, d); !found || probe.ID != id {
		t.Fatalf("probe %+v, %v", probe, found)
	}
	if err := d.Store.SkipProbe(t.Context(), uuid.New()); err != nil {
		t.Fatal(err)
	}
	if _, found := pick(t, d); found {
		t.Error("skipping an email that is not the probe made room for another probe")
	}
	if err := d.Store.SkipProbe(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, found := pick(t, d); !found {
		t.Error("after the probe was skipped there is no other probe")
	}
}

// When nothing is due, the earliest retry that cannot reach its reader twice is tried before its
// time, also if its task waits on the queue.
func TestPickProbe_EarlyRetry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change string
		early  bool
	}{
		"a retry":              {`next_at = now() + interval '2 min'`, true},
		"its task waits":       {`next_at = now() + interval '20 s', enqueued_at = now()`, true},
		"perhaps accepted":     {`next_at = now() + interval '2 min', outcome_unknown = true`, false},
		"at most once":         {`next_at = now() + interval '2 min', delivery = 'at_most_once'`, false},
		"expired":              {`next_at = now() + interval '2 min', expires_at = now()`, false},
		"waits for feedback":   {`next_at = now() + interval '2 min', status = 'OUTCOME_UNKNOWN'`, false},
		"a scheduled email":    {`next_at = now() + interval '2 min', status = 'PENDING'`, false},
		"an earlier one waits": {`next_at = now() + interval '3 min'`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company := d.Company(t)
			id := d.Accept(t, company, nil)
			run(t, d, `UPDATE email_outbox SET status = 'RETRY_SCHEDULED', attempts = 4`)
			run(t, d, `UPDATE email_outbox SET `+c.change)
			if name == "an earlier one waits" {
				run(t, d, `UPDATE email_outbox SET status = 'RETRY_SCHEDULED', next_at = now() + interval '1 min' WHERE id = $1`, d.Accept(t, company, nil))
			}
			openBreaker(t, d, "NETWORK_ERROR")
			later(t, d)
			probe, found := pick(t, d)
			if early := found && probe.ID == id; early != c.early {
				t.Fatalf("probe %+v, %v", probe, found)
			}
			if !c.early {
				return
			}
			batch, err := d.Store.TakeProbe(t.Context(), dispatch.Slot{ID: uuid.New()}, id)
			if err != nil || len(batch.Rows) != 1 || batch.Rows[0].HadTask {
				t.Errorf("taken: %+v, %v", batch, err)
			}
			if _, again := pick(t, d); again {
				t.Error("another one within the pause")
			}
		})
	}
}

// Other emails come first: a retry keeps its time while one is due.
func TestPickProbe_DueBeforeEarly(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	retry := d.Accept(t, company, nil)
	run(t, d, `UPDATE email_outbox SET status = 'RETRY_SCHEDULED', next_at = now() + interval '2 min'`)
	due := d.Accept(t, company, func(e *outbox.NewEmail) { e.Delivery = email.AtMostOnce })
	openBreaker(t, d, "NETWORK_ERROR")
	later(t, d)
	if probe, found := pick(t, d); !found || probe.ID != due {
		t.Errorf("probe %+v, %v, want %s", probe, found, due)
	}
	if !ask[bool](t, d, `SELECT next_at > now() + interval '1 min' FROM email_outbox WHERE id = $1`, retry) {
		t.Error("the retry's time was changed")
	}
}

// A row that another session has locked cannot be claimed by the worker: another row is taken, even if all rows of a lane
// are locked.
func TestPickProbe_PassesOverLockedRows(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"the oldest": `SELECT FROM email_outbox WHERE id = $1 FOR UPDATE`,
		"its lane":   `SELECT FROM email_outbox WHERE lane_id = (SELECT lane_id FROM email_outbox WHERE id = $1) FOR UPDATE`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			older, newer := d.Company(t), d.Company(t)
			oldest, second := d.Accept(t, older, nil), d.Accept(t, older, nil)
			other := d.Accept(t, newer, nil)
			run(t, d, `UPDATE email_outbox SET next_at = now() - interval '2 min' WHERE id = $1`, oldest)
			run(t, d, `UPDATE email_outbox SET next_at = now() - interval '1 min' WHERE id = $1`, second)
			tx, err := d.SQL.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(t.Context(), lock, oldest); err != nil {
				t.Fatal(err)
			}
			openBreaker(t, d, "SES_TIMEOUT")
			later(t, d)
			want := second
			if name == "its lane" {
				want = other
			}
			if probe, found := pick(t, d); !found || probe.ID != want {
				t.Errorf("probe %+v, %v, want %s", probe, found, want)
			}
		})
	}
}

// An email that fails when its answer is lost is a probe only if no other is due.
func TestPickProbe_AtMostOnceIsTheLast(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	fragile := d.Accept(t, company, func(e *outbox.NewEmail) { e.Delivery = email.AtMostOnce })
	run(t, d, `UPDATE email_outbox SET next_at = now() - interval '1 min' WHERE id = $1`, fragile)
	other := d.Accept(t, company, nil)
	openBreaker(t, d, "SES_INTERNAL_ERROR")
	for _, want := range []uuid.UUID{other, fragile} {
		later(t, d)
		if probe, found := pick(t, d); !found || probe.ID != want {
			t.Fatalf("probe %+v, %v, want %s", probe, found, want)
		}
		run(t, d, `UPDATE email_outbox SET status = 'ENQUEUED' WHERE id = $1`, want)
	}
}

// Companies take turns: the older emails of one do not keep the others from probing.
func TestPickProbe_CompaniesTakeTurns(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	busy := d.Company(t)
	var old []uuid.UUID
	for i := range 5 {
		id := d.Accept(t, busy, nil)
		run(t, d, `UPDATE email_outbox SET next_at = now() - interval '1 h' + $2 * interval '1 s' WHERE id = $1`, id, i)
		old = append(old, id)
	}
	quiet := d.Accept(t, d.Company(t), nil)
	openBreaker(t, d, "SES_TIMEOUT")
	for i, want := range []uuid.UUID{old[0], quiet, old[1], quiet, old[2]} {
		later(t, d)
		if probe, found := pick(t, d); !found || probe.ID != want {
			t.Fatalf("probe %d: %+v, %v, want %s", i+1, probe, found, want)
		}
		if want != quiet { // it is a retry meanwhile, behind the others
			run(t, d, `UPDATE email_outbox SET next_at = now() WHERE id = $1`, want)
		}
	}

	// A last probe whose row has been deleted: the oldest due email of all.
	run(t, d, `UPDATE provider_gate SET probe_id = gen_random_uuid()`)
	later(t, d)
	if probe, found := pick(t, d); !found || probe.ID != old[3] {
		t.Errorf("after an unknown probe: %+v, %v, want %s", probe, found, old[3])
	}
}

// The first probe is not the email of the company whose email opened the circuit breaker, however old its emails are,
// unless there is no other.
func TestPickProbe_BeginsAfterTheOpener(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	opener, other := d.Company(t), d.Company(t)
	old := d.Accept(t, opener, nil)
	run(t, d, `UPDATE email_outbox SET next_at = now() - interval '1 h' WHERE id = $1`, old)
	young := d.Accept(t, other, nil)
	for _, want := range []uuid.UUID{young, old} {
		done, err := d.Store.OpenBreaker(t.Context(), breaker.Opening{
			Reason: "SES_ACCESS_DENIED", By: "worker-1", Attempt: uuid.New(), Pass: breaker.Pass{Openings: breakerOf(t, d).Openings},
			Company: uuid.NullUUID{UUID: opener, Valid: true},
		})
		if err != nil || !done.Opened {
			t.Fatalf("opened: %+v, %v", done, err)
		}
		later(t, d)
		if probe, found := pick(t, d); !found || probe.ID != want {
			t.Errorf("probe %+v, %v, want %s", probe, found, want)
		}
		if _, closed, err := d.Store.CloseBreaker(t.Context(), breaker.Closing{By: "w", Pass: breaker.Pass{Openings: breakerOf(t, d).Openings}}); err != nil || !closed {
			t.Fatalf("closed: %v, %v", closed, err)
		}
		run(t, d, `UPDATE email_outbox SET status = 'SENT', processed_at = now() WHERE id = $1`, young)
	}
}

// A probe that still waits on its queue says that workers do not serve that queue, however old its emails are: the next
// ones are on the other queues, also if several are not served.
func TestPickProbe_QueueThatIsNotServed(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, due := d.Company(t), map[string][]uuid.UUID{}
	for age, priority := range []int{5, 1, 9} {
		for range 3 {
			id := d.Accept(t, company, func(e *outbox.NewEmail) { e.Priority = priority })
			run(t, d, `UPDATE email_outbox SET next_at = now() - $2 * interval '1 h' WHERE id = $1`, id, age)
			queue := email.QueueFor(priority)
			due[queue] = append(due[queue], id)
		}
	}
	openBreaker(t, d, "SES_TIMEOUT")
	var queues []string
	for range 4 {
		later(t, d)
		probe, found := pick(t, d)
		if !found || !slices.Contains(due[probe.Queue], probe.ID) {
			t.Fatalf("%+v, %v", probe, found)
		}
		queues = append(queues, probe.Queue)
		run(t, d, `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = $1`, probe.ID)
	}
	if want := []string{"email:send:low", "email:send", "email:send:high", "email:send:low"}; !slices.Equal(queues, want) {
		t.Errorf("probes on %v, want %v", queues, want)
	}
	// A worker has taken the last one: the oldest email of the company is next.
	run(t, d, `UPDATE email_outbox SET status = 'SENT', processed_at = now() WHERE id = (SELECT probe_id FROM provider_gate)`)
	later(t, d)
	if probe, found := pick(t, d); !found || probe.Queue != "email:send:low" {
		t.Errorf("after a probe that was taken: %+v, %v", probe, found)
	}
}

// All companies get a probe in one cycle, whatever the order of their ids and the age of
// their emails, in whichever queue they are.
func TestPickProbe_OneCycle(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	seen := map[uuid.UUID]bool{}
	for i := range 6 {
		company := d.Company(t)
		for _, priority := range []int{1, 5, 9} {
			id := d.Accept(t, company, func(e *outbox.NewEmail) { e.Priority = priority })
			run(t, d, `UPDATE email_outbox SET next_at = now() - $2 * interval '1 min' WHERE id = $1`, id, 1+i*i%5)
		}
	}
	openBreaker(t, d, "SES_TIMEOUT")
	for range 6 {
		later(t, d)
		probe, found := pick(t, d)
		if !found {
			t.Fatal("no probe")
		}
		seen[ask[uuid.UUID](t, d, `SELECT company_id FROM email_outbox WHERE id = $1`, probe.ID)] = true
	}
	if len(seen) != 6 {
		t.Errorf("6 probes of %d companies, want 6", len(seen))
	}
}

// Many due emails with delivery at_most_once are not all read, even if they are due at the
// same time.
func TestPickProbe_ReadsTheFirstOfALane(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	like := d.Accept(t, d.Company(t), func(e *outbox.NewEmail) { e.Delivery = email.AtMostOnce })
	run(t, d, `
		INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at, status, delivery, next_at)
		SELECT overlay(id::text placing lpad(to_hex(n), 12, '0') from 25)::uuid, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at,
		       status, delivery, next_at
		FROM email_outbox, generate_series(1, 20000) n WHERE id = $1`, like)
	run(t, d, `ANALYZE email_outbox`)
	openBreaker(t, d, "SES_TIMEOUT")
	later(t, d)
	tx, err := storetest.Connect(t, d, store.Options{}).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for i, statement := range []string{written(t, "dispatch.pickSafeProbeSQL"), written(t, "dispatch.pickProbeSQL")} {
		var before, after int
		const rowsRead = `SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables WHERE relname = 'email_outbox'`
		if err := tx.QueryRowContext(t.Context(), rowsRead).Scan(&before); err != nil {
			t.Fatal(err)
		}
		done, err := tx.ExecContext(t.Context(), statement, pq.Array(email.Queues()), probePause.Milliseconds())
		if err != nil {
			t.Fatal(err)
		}
		if n, err := done.RowsAffected(); err != nil || n != int64(i) {
			t.Errorf("statement %d: %d probes, %v, want %d", i+1, n, err, i)
		}
		if err := tx.QueryRowContext(t.Context(), rowsRead).Scan(&after); err != nil {
			t.Fatal(err)
		}
		if n := after - before; n > 500 {
			t.Errorf("statement %d reads %d rows of one lane", i+1, n)
		}
	}
}

// Of several dispatchers that pick at once, one finds a probe.
func TestPickProbe_OneOfMany(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for range 8 {
		d.Accept(t, company, nil)
	}
	openBreaker(t, d, "SES_TIMEOUT")
	later(t, d)
	var picked atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if _, found, err := d.Store.PickProbe(t.Context(), email.Queues(), probePause, true); err != nil {
				t.Error(err)
			} else if found {
				picked.Add(1)
			}
		})
	}
	group.Wait()
	if n := picked.Load(); n != 1 {
		t.Errorf("%d probes at once, want 1", n)
	}
}

// The account closes a circuit breaker that the account opened, but not one that the answer to an email opened.
func TestOpenBreakerByAccount(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, nil)
	for _, want := range []bool{true, false} {
		done, err := d.Store.OpenBreakerByAccount(t.Context(), "SES_ACCOUNT_SENDING_PAUSED", "worker-1")
		if err != nil || done != want {
			t.Fatalf("opened: %v, %v, want %v", done, err, want)
		}
	}
	g := breakerOf(t, d)
	if !g.IsOpen || *g.Reason != "SES_ACCOUNT_SENDING_PAUSED" || *g.ChangedBy != "worker-1" || g.AttemptID != nil || g.Openings != 1 {
		t.Fatalf("circuit breaker = %+v", g)
	}
	if got := outcomeOf(t, d, storetest.ClaimOf(company, id, uuid.New(), "C")); got.Applied {
		t.Error("an email passed")
	}
	was, opened, err := d.Store.CloseBreakerByAccount(t.Context(), "worker-2")
	if err != nil || !opened || was.Reason != "SES_ACCOUNT_SENDING_PAUSED" || breakerOf(t, d).IsOpen {
		t.Fatalf("open: %+v, %v, %v", was, opened, err)
	}
	if _, opened, err = d.Store.CloseBreakerByAccount(t.Context(), "worker-2"); err != nil || opened {
		t.Errorf("opened twice: %v, %v", opened, err)
	}
	openBreaker(t, d, "SES_ACCOUNT_SENDING_PAUSED")
	if _, opened, err = d.Store.CloseBreakerByAccount(t.Context(), "worker-2"); err != nil || opened {
		t.Errorf("closed a circuit breaker that an email opened: %v, %v", opened, err)
	}
	if done, err := d.Store.OpenBreakerByAccount(t.Context(), "SES_DAILY_QUOTA_EXCEEDED", "worker-1"); err != nil || done || *breakerOf(t, d).Reason != "SES_ACCOUNT_SENDING_PAUSED" {
		t.Errorf("opened an open circuit breaker: %v, %v", done, err)
	}
}

// Of two operators who pause all sending at the same moment, one learns of the other's reason.
func TestHoldBreaker_Simultaneously(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	for range 20 {
		results := make(chan error)
		for _, reason := range []string{"drill", "SES asked"} {
			go func() {
				_, err := d.Store.HoldBreaker(t.Context(), storetest.Because(reason), false)
				results <- err
			}()
		}
		refused := 0
		for range 2 {
			var other *lane.HeldError
			if err := <-results; errors.As(err, &other) {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
		if refused != 1 {
			t.Fatalf("%d of two were refused", refused)
		}
		if _, err := d.Store.ReleaseBreaker(t.Context(), storetest.Because("")); err != nil {
			t.Fatal(err)
		}
	}
}

// An operator's hold is independent of the provider, and ends only when the operator releases it.
func TestHoldBreaker(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, nil)
	if _, err := d.Store.HoldBreaker(t.Context(), storetest.Because("drill"), false); err != nil {
		t.Fatal(err)
	}
	held := breakerOf(t, d)
	if held.HeldAt == nil || *held.HeldReason != "drill" || held.IsOpen {
		t.Fatalf("circuit breaker = %+v", held)
	}
	claim := func() bool { return outcomeOf(t, d, storetest.ClaimOf(company, id, uuid.New(), "C")).Applied }
	if claim() || len(liveLanes(t, d)) > 0 {
		t.Error("an email passed")
	}
	openBreaker(t, d, "SES_TIMEOUT")
	later(t, d)
	if probe, found := pick(t, d); found {
		t.Errorf("probe %+v", probe)
	}
	if _, opened, err := d.Store.CloseBreaker(t.Context(), breaker.Closing{By: "w", Pass: breaker.Pass{Openings: breakerOf(t, d).Openings}, Accepted: true}); err != nil || !opened {
		t.Fatal(opened, err)
	}
	var other *lane.HeldError
	if _, err := d.Store.HoldBreaker(t.Context(), storetest.Because("longer drill"), false); !errors.As(err, &other) || other.Holds[0].Reason != "drill" {
		t.Errorf("another reason: %v", err)
	}
	if before, err := d.Store.HoldBreaker(t.Context(), storetest.Because("longer drill"), true); err != nil || len(before) != 1 || before[0].Reason != "drill" {
		t.Fatal(err)
	}
	if g := breakerOf(t, d); claim() || g.HeldAt == nil || !g.HeldAt.Equal(*held.HeldAt) || *g.HeldReason != "longer drill" {
		t.Errorf("circuit breaker = %+v", g)
	}
	if before, err := d.Store.ReleaseBreaker(t.Context(), storetest.Operator()); err != nil || len(before) != 1 || before[0].Reason != "longer drill" {
		t.Fatal(err)
	}
	if !claim() {
		t.Error("nothing passes after the hold")
	}
}

func TestHoldLanes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	acme, beta := d.Company(t), d.Company(t)
	waiting, other := d.Accept(t, acme, nil), d.Accept(t, beta, nil)
	done, err := d.Store.HoldLanes(t.Context(), storetest.Because("complaints"), acme, lane.Filter{Queue: email.QueueNormal}, false)
	if err != nil || done.Lanes != 1 || len(done.Before) > 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	if got := outcomeOf(t, d, storetest.ClaimOf(acme, waiting, uuid.New(), "C")); got.Applied {
		t.Error("an email of a held lane passed")
	}
	if got := outcomeOf(t, d, storetest.ClaimOf(beta, other, uuid.New(), "C")); !got.Applied {
		t.Error("the lane of another company is held too")
	}
	shown, err := d.Store.Lanes(t.Context(), lane.Filter{NotOpen: true}, 10)
	if err != nil || len(shown) != 1 || shown[0].CompanyID != acme || shown[0].HeldReason == nil || *shown[0].HeldReason != "complaints" {
		t.Errorf("lanes %+v, %v", shown, err)
	}
	// A hold for another reason is neither replaced nor ended silently.
	var refused *lane.HeldError
	normal := lane.Filter{Queue: email.QueueNormal}
	if _, err = d.Store.HoldLanes(t.Context(), storetest.Because("all"), acme, normal, false); !errors.As(err, &refused) ||
		len(refused.Holds) != 1 || refused.Holds[0].Reason != "complaints" || refused.Holds[0].Lanes != 1 || !refused.Holds[0].Since.Equal(*shown[0].HeldAt) {
		t.Errorf("%+v, %v", refused, err)
	}
	rest, err := d.Store.HoldLanes(t.Context(), storetest.Because("quota"), acme, lane.Filter{}, false)
	if err != nil || rest.Lanes < 2 || len(rest.Before) != 1 || rest.Before[0].Reason != "complaints" {
		t.Errorf("%+v, %v", rest, err)
	}
	if _, err = d.Store.ReleaseLanes(t.Context(), storetest.Operator(), acme, lane.Filter{}, "", false); !errors.As(err, &refused) || len(refused.Holds) != 2 {
		t.Errorf("%+v, %v", refused, err)
	}
	refused = nil
	if _, err = d.Store.ReleaseLanes(t.Context(), storetest.Operator(), acme, lane.Filter{}, "Quota", true); !errors.As(err, &refused) || len(refused.Holds) != 2 {
		t.Errorf("a reason that no lane has: %+v, %v", refused, err)
	}
	reasons := `SELECT string_agg(DISTINCT held_reason, ' ') FROM dispatch_lanes`
	if got := ask[string](t, d, reasons); got != "complaints quota" {
		t.Error("held for", got)
	}
	if done, err = d.Store.ReleaseLanes(t.Context(), storetest.Operator(), acme, lane.Filter{}, "quota", false); err != nil || done.Lanes != rest.Lanes {
		t.Errorf("%+v, %v", done, err)
	}
	if got := ask[string](t, d, reasons); got != "complaints" {
		t.Error("held for", got)
	}
	held, err := d.Store.HoldLanes(t.Context(), storetest.Because("all"), acme, lane.Filter{}, true)
	if err != nil || held.Lanes < 3 || len(held.Before) != 1 || held.Before[0].Reason != "complaints" {
		t.Errorf("%+v, %v", held, err)
	}
	if done, err = d.Store.ReleaseLanes(t.Context(), storetest.Operator(), acme, lane.Filter{}, "", false); err != nil || done.Lanes != held.Lanes ||
		len(done.Before) != 1 || done.Before[0].Reason != "all" || done.Before[0].Lanes != held.Lanes {
		t.Errorf("%+v, %v", done, err)
	}
	if got := outcomeOf(t, d, storetest.ClaimOf(acme, waiting, uuid.New(), "C")); !got.Applied {
		t.Error("nothing passes after the hold")
	}
}

// outcomeOf is the result of one transition, applied or not.
func outcomeOf(t *testing.T, d storetest.Database, transition outbox.Transition) outbox.Advanced {
	t.Helper()
	done, err := d.Store.Advance(t.Context(), transition)
	if err != nil {
		t.Fatal(err)
	}
	return done
}
