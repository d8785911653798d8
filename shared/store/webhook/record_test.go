package webhook_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/webhook"
)

// A round's cursor, deliveries and health are one commit. The cursor never moves back, and the next delivery
// of an email is due when the one before has ended.
func TestRecord(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	company := d.Company(t)
	id := newEndpoint(t, s, company)
	l := take(t, sender, id)
	email := uuid.New()
	first, second := failed(email, 1), failed(email, 2)
	second.Status, second.Attempts = webhook.Waiting, 0
	after, err := sender.Record(t.Context(), l, webhook.Result{New: []webhook.Attempted{first, second}, Cursor: webhook.Cursor{Position: 5, Number: 9}, Failures: 1, Error: "HTTP_500"}, disableAfter)
	if err != nil || after.Open != 2 || after.Failures != 1 || after.FailingSince == nil || after.Position != 5 || after.Number != 9 || after.DisabledNow {
		t.Fatalf("%+v, %v", after, err)
	}
	round, err := sender.Load(t.Context(), l, time.Hour)
	if err != nil || len(round.Due) != 0 || len(round.OpenEmails) != 1 || round.OpenEmails[0] != email {
		t.Fatalf("%+v, %v", round, err)
	}
	d.Run(t, `UPDATE webhook_deliveries SET next_at = now() WHERE status = 'RETRYING'`)
	if round, err = sender.Load(t.Context(), l, time.Hour); err != nil || len(round.Due) != 1 || round.Due[0].Position != 1 {
		t.Fatalf("%+v, %v", round, err)
	}
	done := webhook.Attempted{Delivery: round.Due[0]}
	done.Status = webhook.Delivered
	after, err = sender.Record(t.Context(), l, webhook.Result{Attempted: []webhook.Attempted{done}, Succeeded: true, Cursor: webhook.Cursor{Position: 4}}, disableAfter)
	if err != nil || after.Open != 1 || after.Failures != 0 || after.FailingSince != nil || after.Position != 5 || after.Number != 9 {
		t.Fatalf("%+v, %v", after, err)
	}
	if round, err = sender.Load(t.Context(), l, time.Hour); err != nil || len(round.Due) != 1 || round.Due[0].Position != 2 {
		t.Fatalf("the next one of the email: %+v, %v", round, err)
	}
	if n := storetest.Ask[int](t, d, `SELECT count(*) FROM webhook_deliveries`); n != 2 {
		t.Errorf("%d rows", n)
	}
}

// 410 disables at once, failures after the given time. The lease ends, and what is open stays.
func TestRecord_Disables(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	company := d.Company(t)
	for reason, prepare := range map[webhook.Reason]func(id uuid.UUID, r *webhook.Result){
		webhook.Gone: func(_ uuid.UUID, r *webhook.Result) { r.Gone = true },
		webhook.Failing: func(id uuid.UUID, _ *webhook.Result) {
			d.Run(t, `UPDATE webhook_endpoints SET failures = 3, failing_since = now() - interval '121 h' WHERE id = $1`, id)
		},
	} {
		id := newEndpoint(t, s, company)
		l := take(t, sender, id)
		r := webhook.Result{New: []webhook.Attempted{failed(uuid.New(), 1)}, Failures: 1, Error: "HTTP_410"}
		prepare(id, &r)
		after, err := sender.Record(t.Context(), l, r, disableAfter)
		if err != nil || !after.DisabledNow || after.Status != webhook.Disabled || *after.DisabledReason != reason || after.Open != 1 {
			t.Fatalf("%s: %+v, %v", reason, after, err)
		}
		want := fmt.Sprintf(`{"reason": %q, "lastError": "HTTP_410", "webhookId": %q}`, reason, id)
		if got := storetest.Ask[string](t, d, `SELECT metadata FROM company_events WHERE company_id = $1 AND type = 'WEBHOOK_DISABLED' ORDER BY id DESC LIMIT 1`, company); got != want {
			t.Errorf("%s: the event %s, want %s", reason, got, want)
		}
		if err := sender.Take(t.Context(), l, time.Minute); err == nil {
			t.Errorf("%s: a disabled endpoint is served", reason)
		}
		if _, err := s.Enable(t.Context(), company, id); err != nil {
			t.Fatal(err)
		}
		if e := find(t, s, company, id); e.Status != webhook.Enabled || e.Failures != 0 || e.FailingSince != nil || e.Open != 1 {
			t.Errorf("%s, enabled: %+v", reason, e)
		}
	}
}

// A round without a failed attempt does not disable the endpoint, although its last attempt failed long ago.
func TestRecord_NoAttempt(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	id := newEndpoint(t, s, d.Company(t))
	l := take(t, sender, id)
	d.Run(t, `UPDATE webhook_endpoints SET failures = 3, failing_since = now() - interval '121 h' WHERE id = $1`, id)
	after, err := sender.Record(t.Context(), l, webhook.Result{Cursor: webhook.Cursor{Position: 5}}, disableAfter)
	if err != nil || after.DisabledNow || after.Status != webhook.Enabled || after.Position != 5 {
		t.Fatalf("%+v, %v", after, err)
	}
	after, err = sender.Record(t.Context(), l, webhook.Result{Failures: 1, Error: "HTTP_500"}, disableAfter)
	if err != nil || !after.DisabledNow {
		t.Errorf("after a failed attempt: %+v, %v", after, err)
	}
}

// The result of a round that attempted an earlier URL does not affect the endpoint's health at its new URL. Failed deliveries are
// due at once, with their earlier attempts.
func TestRecord_OldURL(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	company := d.Company(t)
	id := newEndpoint(t, s, company)
	l := take(t, sender, id)
	old := find(t, s, company, id).URL
	if _, err := sender.Record(t.Context(), l, webhook.Result{URL: old, New: []webhook.Attempted{failed(uuid.New(), 1), failed(uuid.New(), 2)}}, disableAfter); err != nil {
		t.Fatal(err)
	}
	d.Run(t, `UPDATE webhook_deliveries SET attempts = 9, next_at = now()`)
	round, err := sender.Load(t.Context(), l, time.Hour)
	if err != nil || len(round.Due) != 2 {
		t.Fatalf("%+v, %v", round, err)
	}
	moved := "https://crm.acme.example/hooks"
	if _, err := s.Update(t.Context(), company, id, webhook.Change{URL: &moved}); err != nil {
		t.Fatal(err)
	}
	last, sent := webhook.Attempted{Delivery: round.Due[0]}, webhook.Attempted{Delivery: round.Due[1]}
	last.Status, last.Attempts = webhook.Failed, 10
	sent.Status, sent.Attempts = webhook.Delivered, 10
	after, err := sender.Record(t.Context(), l, webhook.Result{
		URL: old, Attempted: []webhook.Attempted{last, sent}, New: []webhook.Attempted{failed(uuid.New(), 3)},
		Failures: 2, Error: "HTTP_410", Gone: true, RetryAfter: time.Hour, Cursor: webhook.Cursor{Position: 7},
	}, disableAfter)
	if err != nil || after.DisabledNow || after.Status != webhook.Enabled || after.Failures != 0 || after.NotBefore != nil || after.LastError != nil || after.Open != 2 || after.Position != 7 {
		t.Fatalf("%+v, %v", after, err)
	}
	if round, err = sender.Load(t.Context(), l, time.Hour); err != nil || len(round.Due) != 2 {
		t.Fatalf("%+v, %v", round, err)
	}
	for _, due := range round.Due {
		if want := map[int64]int{1: 9, 3: 0}[due.Position]; due.Attempts != want {
			t.Errorf("delivery %d: %d attempts, want %d", due.Position, due.Attempts, want)
		}
	}
}

// A test and the retry of a delivery end the endpoint's pause, and are attempted before the deliveries that are overdue.
func TestRecord_PauseEnds(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	company := d.Company(t)
	for name, request := range map[string]func(id uuid.UUID) error{
		"test": func(id uuid.UUID) error {
			_, err := s.CreateTest(t.Context(), company, id, uuid.Must(uuid.NewV7()))
			return err
		},
		"retry": func(id uuid.UUID) error {
			_, err := s.RetryDelivery(t.Context(), company, id, storetest.Ask[uuid.UUID](t, d, `SELECT id FROM webhook_deliveries WHERE endpoint_id = $1 AND position = 3`, id))
			return err
		},
	} {
		id := newEndpoint(t, s, company)
		l := take(t, sender, id)
		after, err := sender.Record(t.Context(), l, webhook.Result{New: []webhook.Attempted{failed(uuid.New(), 1), failed(uuid.New(), 2), failed(uuid.New(), 3)}, Failures: 1, Error: "HTTP_429", RetryAfter: time.Hour}, disableAfter)
		if err != nil || after.NotBefore == nil {
			t.Fatalf("%s: %+v, %v", name, after, err)
		}
		if err := sender.Release(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		d.Run(t, `UPDATE webhook_deliveries SET next_at = now() - interval '1 h' WHERE endpoint_id = $1 AND position < 3`, id)
		if err := request(id); err != nil {
			t.Fatal(name, err)
		}
		due, err := sender.Due(t.Context(), time.Hour, 10)
		if err != nil || !slices.ContainsFunc(due, func(w webhook.Work) bool { return w.EndpointID == id }) {
			t.Errorf("%s: the endpoint is not due: %v, %v", name, due, err)
		}
		round, err := sender.Load(t.Context(), take(t, sender, id), time.Hour)
		if err != nil || len(round.Due) != 3 || round.Due[0].Position != map[string]int64{"test": 0, "retry": 3}[name] {
			t.Errorf("%s: not the first of the due deliveries: %+v, %v", name, round.Due, err)
		}
	}
}

// Retries that are due before their scheduled time, because the endpoint is up again, keep their schedule: a failed one is
// due at that time, with its attempts, and so are all if the endpoint is down again.
func TestRecord_EarlyRetries(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	id := newEndpoint(t, s, d.Company(t))
	l := take(t, sender, id)
	record := func(r webhook.Result) {
		t.Helper()
		if _, err := sender.Record(t.Context(), l, r, disableAfter); err != nil {
			t.Fatal(err)
		}
	}
	due := func(want int) []webhook.Delivery {
		t.Helper()
		round, err := sender.Load(t.Context(), l, time.Hour)
		if err != nil || len(round.Due) != want {
			t.Fatalf("%d are due, want %d, %v", len(round.Due), want, err)
		}
		return round.Due
	}
	record(webhook.Result{New: []webhook.Attempted{failed(uuid.New(), 1), failed(uuid.New(), 2), failed(uuid.New(), 3)}, Failures: webhook.DownFailures, Error: "HTTP_500"})
	d.Run(t, `UPDATE webhook_deliveries SET scheduled_at = NULL WHERE position = 3`) // a worker of the previous release has written it
	scheduled := storetest.Ask[time.Time](t, d, `SELECT next_at FROM webhook_deliveries WHERE position = 1`)
	due(0)
	record(webhook.Result{Succeeded: true})
	all := due(3)
	for _, early := range all {
		if early.ScheduledAt == nil {
			t.Fatalf("delivery %d: a failed attempt would count", early.Position)
		}
	}
	first := webhook.Attempted{Delivery: all[0]}
	record(webhook.Result{Attempted: []webhook.Attempted{first}, Failures: 1, Error: "HTTP_500"})
	due(2)
	record(webhook.Result{Failures: webhook.DownFailures, Error: "HTTP_500"})
	due(0)
	if at := storetest.Ask[time.Time](t, d, `SELECT next_at FROM webhook_deliveries WHERE position = 1`); !at.Equal(scheduled) {
		t.Errorf("the next attempt is at %v, want %v", at, scheduled)
	}
	if n := storetest.Ask[int](t, d, `SELECT count(*) FROM webhook_deliveries WHERE attempts = 1 AND next_at > now() + interval '30 min'`); n != 3 {
		t.Errorf("%d of 3 have their schedule", n)
	}
	d.Run(t, `UPDATE webhook_deliveries SET next_at = now(), scheduled_at = now()`)
	for _, d := range due(3) {
		if d.ScheduledAt != nil {
			t.Errorf("delivery %d: an attempt at the scheduled time would not count", d.Position)
		}
	}
}

// A throttled delivery is attempted again before its scheduled time, after a pause that grows with its age. The
// pauses of the endpoint double until it accepts a request. Time without events does not extend them.
func TestRecord_Throttled(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	company := d.Company(t)
	id := newEndpoint(t, s, company)
	l := take(t, sender, id)
	seconds := func(query string) float64 {
		t.Helper()
		return storetest.Ask[float64](t, d, query)
	}
	const next = `SELECT extract(epoch FROM next_at - updated_at)::float8 FROM webhook_deliveries`
	const pause = `SELECT extract(epoch FROM not_before - updated_at)::float8 FROM webhook_endpoints`
	first := failed(uuid.New(), 1)
	first.Throttled = true
	throttled := webhook.Result{New: []webhook.Attempted{first}, Failures: 1, Error: "HTTP_429", Throttled: true}
	if _, err := sender.Record(t.Context(), l, throttled, disableAfter); err != nil {
		t.Fatal(err)
	}
	if got := [2]float64{seconds(next), seconds(pause)}; got != [2]float64{1, 1} {
		t.Errorf("the first pauses: %v", got)
	}
	for age, want := range map[time.Duration]float64{40 * time.Second: 10, 2 * time.Hour: 300} {
		d.Run(t, `UPDATE webhook_deliveries SET created_at = now() - $1 * interval '1 s', next_at = now()`, age.Seconds())
		round, err := sender.Load(t.Context(), l, time.Hour)
		if err != nil || len(round.Due) != 1 || round.Due[0].ScheduledAt == nil {
			t.Fatalf("%+v, %v", round, err)
		}
		throttled.New, throttled.Attempted = nil, []webhook.Attempted{{Delivery: round.Due[0], Throttled: true}}
		if _, err := sender.Record(t.Context(), l, throttled, disableAfter); err != nil {
			t.Fatal(err)
		}
		if got := seconds(next); got < want || got > want+30 {
			t.Errorf("after %v: the next attempt after %v s, want %v s", age, got, want)
		}
	}
	throttled.Attempted = nil
	for _, want := range []float64{8, 16, 32, 64, 128, 256, 300, 300} {
		d.Run(t, `UPDATE webhook_endpoints SET failing_since = now() - interval '2 h', last_failure_at = last_failure_at - interval '1 h', not_before = not_before - interval '1 h'`)
		if _, err := sender.Record(t.Context(), l, throttled, disableAfter); err != nil {
			t.Fatal(err)
		}
		if got := seconds(pause); got != want {
			t.Errorf("a pause of %v s, want %v s", got, want)
		}
	}
	if _, err := sender.Record(t.Context(), l, webhook.Result{Failures: 1, Error: "HTTP_500"}, disableAfter); err != nil {
		t.Fatal(err)
	}
	d.Run(t, `UPDATE webhook_endpoints SET last_failure_at = not_before + interval '1 h'`)
	if _, err := sender.Record(t.Context(), l, throttled, disableAfter); err != nil {
		t.Fatal(err)
	}
	if got := seconds(pause); got != 1 {
		t.Errorf("after a failure without a pause: a pause of %v s", got)
	}
	throttled.Succeeded = true
	if _, err := sender.Record(t.Context(), l, throttled, disableAfter); err != nil {
		t.Fatal(err)
	}
	if got := seconds(pause); got != 1 {
		t.Errorf("after a success: a pause of %v s", got)
	}
}
