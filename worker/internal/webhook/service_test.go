package webhook_test

import (
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/store/event"
	webhookstore "email-gateway/shared/store/webhook"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/webhook"
)

// Two processes deliver every event once, in order per email, with one row for none of them.
func TestService_DeliversInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	all := w.endpoint(t, company)
	some := w.endpoint(t, company, "email.sent", "email.deliver*")
	for range 2 {
		w.start(t, nil)
	}
	for range 5 {
		w.emit(t, company, 60, 5)
	}
	waittest.Until(t, "1500 events", func() bool { return len(all.messages()) >= 1500 && len(some.messages()) >= 600 })
	all.check(t, w, 1500)
	some.check(t, w, 600)
	if n := len(all.messages()); n != 1500 {
		t.Errorf("%d deliveries of 1500 events", n)
	}
	for _, m := range some.messages() {
		if m.Type != "email.sent" && m.Type != "email.delivered" || m.To != "Maria.Silva@cliente.example" {
			t.Fatalf("%+v", m)
		}
	}
	if rows := w.deliveries(t, all, ""); len(rows) != 0 {
		t.Errorf("%d rows of deliveries that did not fail", len(rows))
	}
}

// An endpoint that is down for 60 hours gets every event afterwards, with its first id and in order
// per email, and the rows that it costs are bounded.
func TestService_DownFor60Hours(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	const hour = 100 * time.Millisecond
	r := w.endpoint(t, company)
	r.setAnswer(func(message) int { return http.StatusInternalServerError })
	w.start(t, func(p *webhook.Params) {
		p.Schedule, p.ProbeAfter, p.DisableAfter = scaled(hour), hour/12, time.Hour
	})
	w.emit(t, company, 3, 4)
	started := time.Now()
	waittest.Until(t, "down", func() bool { return w.find(t, r).Down() })
	for range 10 {
		w.emit(t, company, 200, 4)
	}
	waittest.Until(t, "60 hours", func() bool { return time.Since(started) >= 60*hour })
	if e := w.find(t, r); e.Open > webhookstore.MaxOpen+100 || e.Status != webhookstore.Enabled {
		t.Errorf("%d open deliveries, %s", e.Open, e.Status)
	}
	first := map[string]string{}
	for _, m := range r.attempts() {
		first[m.Email+m.Type] = m.ID
	}
	r.setAnswer(nil)
	const events = 3*4 + 10*200*4
	waittest.Until(t, "every event", func() bool {
		seen := map[string]bool{}
		for _, m := range r.messages() {
			seen[m.ID] = true
		}
		return len(seen) >= events
	})
	r.check(t, w, events)
	for _, m := range r.messages() {
		if id := first[m.Email+m.Type]; id != "" && id != m.ID {
			t.Errorf("%s of %s was attempted as %s and delivered as %s", m.Type, m.Email, id, m.ID)
		}
	}
	waittest.Until(t, "healthy again", func() bool { e := w.find(t, r); return e.Open == 0 && e.Failures == 0 && e.FailingSince == nil })
}

// The attempts of a delivery follow the schedule; then it has failed, and can be replayed. Later events of
// its email wait, those of other emails do not.
func TestService_AttemptsAndReplays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r := w.endpoint(t, company)
	w.emit(t, company, 1, 1)
	var broken atomic.Pointer[string]
	r.setAnswer(func(m message) int {
		if id := broken.Load(); id != nil && m.Email == *id && m.Seq == 1 {
			return http.StatusBadRequest
		}
		return http.StatusNoContent
	})
	w.start(t, func(p *webhook.Params) { p.Schedule = scaled(20 * time.Millisecond) })
	waittest.Until(t, "the first", func() bool { return len(r.messages()) == 1 })
	id := uuid.Must(uuid.NewV7()).String()
	broken.Store(&id)
	w.exec(t, `INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, event_seq, last_event)
VALUES ($1, $2, 'b@cliente.example', 's', 'PENDING', 0, 'r', now(), now(), 1, 'RECEIVED')`, id, company)
	w.exec(t, `INSERT INTO email_events (email_log_id, seq, previous, type, created_at) VALUES ($1, 1, NULL, 'RECEIVED', now()), ($1, 2, 'RECEIVED', 'VALIDATED', now())`, id)
	w.emit(t, company, 5, 2)
	waittest.Until(t, "other emails", func() bool { return len(r.messages()) >= 11 })
	for _, m := range r.messages() {
		if m.Email == id && len(w.deliveries(t, r, webhookstore.Failed)) == 0 {
			t.Fatal("an event overtook a failed one of the same email")
		}
	}
	waittest.Until(t, "the last attempt", func() bool { return len(w.deliveries(t, r, webhookstore.Failed)) == 1 })
	failed := w.deliveries(t, r, webhookstore.Failed)[0]
	attempts := 0
	for _, m := range r.attempts() {
		if m.ID == failed.EventID {
			attempts++
		}
	}
	if attempts != 10 || failed.Attempts != 10 || *failed.LastStatus != 400 || *failed.LastError != "HTTP_400" {
		t.Errorf("%d attempts, %+v", attempts, failed)
	}
	waittest.Until(t, "the event behind it", func() bool { return len(r.messages()) == 12 })

	broken.Store(nil)
	if _, err := w.Hooks.CreateReplay(t.Context(), webhookstore.Replay{ID: uuid.Must(uuid.NewV7()), EndpointID: r.ID, CompanyID: company}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the replay of failed ones", func() bool { return len(w.deliveries(t, r, webhookstore.Delivered)) == 2 && len(r.messages()) == 13 })
	if _, err := w.Hooks.RetryDelivery(t.Context(), company, r.ID, failed.ID); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the replay of one", func() bool { return len(r.messages()) == 14 })

	since, until := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	replay := webhookstore.Replay{ID: uuid.Must(uuid.NewV7()), EndpointID: r.ID, CompanyID: company, Since: &since, Until: &until}
	if _, err := w.Hooks.CreateReplay(t.Context(), replay); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the replay of a range", func() bool {
		done, err := w.Hooks.FindReplay(t.Context(), company, r.ID, replay.ID)
		return err == nil && done.Status == webhookstore.ReplayCompleted && done.Done == 13
	})
	seen := map[string]int{}
	for _, m := range r.messages() {
		seen[m.ID]++
	}
	if len(seen) != 13 {
		t.Errorf("%d events", len(seen))
	}
}

// A filter of types that this release does not know selects only their events, which a newer release writes. Endpoints with
// a prefix of the type or without a filter get them too.
func TestService_UnknownTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	exact, all, others := w.endpoint(t, company, "company.of_next_release"), w.endpoint(t, company), w.endpoint(t, company, "next.*", "company.of_next_", "email.of*")
	var prefixes []*receiver
	for _, prefix := range []string{"company.*", "company.of_n*", "c*"} {
		prefixes = append(prefixes, w.endpoint(t, company, prefix))
	}
	w.start(t, nil)
	w.emit(t, company, 2, 3)
	w.exec(t, `ALTER TABLE company_events DROP CONSTRAINT company_events_type_check`) // as the newer release's migration does
	w.exec(t, `INSERT INTO company_events (id, company_id, type, metadata) VALUES ($1, $2, 'OF_NEXT_RELEASE', '{}')`, uuid.Must(uuid.NewV7()), company)
	w.assign(t)
	head, err := w.Sending.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the cursors", func() bool {
		return !slices.ContainsFunc(append(prefixes, exact, all, others), func(r *receiver) bool { return w.find(t, r).Position < head })
	})
	all.check(t, w, 7)
	others.check(t, w, 0)
	for _, r := range append(prefixes, exact) {
		r.check(t, w, 1)
		for _, m := range r.messages() {
			if m.Type != "company.of_next_release" {
				t.Errorf("%+v", m)
			}
		}
	}
}

// A test is delivered once, and says nothing about the endpoint's health.
func TestService_Test(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r := w.endpoint(t, company)
	r.setAnswer(func(message) int { return http.StatusTeapot })
	w.start(t, nil)
	id := uuid.Must(uuid.NewV7())
	if _, err := w.Hooks.CreateTest(t.Context(), company, r.ID, id); err != nil {
		t.Fatal(err)
	}
	var d webhookstore.Delivery
	waittest.Until(t, "the test", func() bool {
		var err error
		d, err = w.Hooks.FindDelivery(t.Context(), company, r.ID, id)
		return err == nil && d.Status == webhookstore.Failed
	})
	if d.Attempts != 1 || *d.LastStatus != http.StatusTeapot || w.find(t, r).Failures != 0 {
		t.Errorf("%+v", d)
	}
}

// 410 disables an endpoint, and so do failures for too long. An enabled endpoint goes on where it
// stopped.
func TestService_Disables(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	gone, failing, busy := w.endpoint(t, company, "email.*"), w.endpoint(t, company, "email.*"), w.endpoint(t, company, "email.*")
	other := w.endpoint(t, company, "company.webhook_disabled")
	gone.setAnswer(func(message) int { return http.StatusGone })
	failing.setAnswer(func(message) int { return http.StatusMovedPermanently })
	var throttle atomic.Bool
	throttle.Store(true)
	busy.setAnswer(func(message) int {
		if throttle.Load() {
			return http.StatusTooManyRequests
		}
		return http.StatusOK
	})
	w.start(t, func(p *webhook.Params) {
		p.Schedule, p.DisableAfter, p.ProbeAfter = scaled(100*time.Millisecond), 2*time.Second, 50*time.Millisecond
	})
	w.emit(t, company, 2, 3)
	waittest.Until(t, "410", func() bool {
		e := w.find(t, gone)
		return e.Status == webhookstore.Disabled && *e.DisabledReason == webhookstore.Gone
	})
	if n := len(gone.attempts()); n > 4 {
		t.Errorf("%d attempts after 410", n)
	}
	waittest.Until(t, "failing", func() bool {
		e := w.find(t, failing)
		return e.Status == webhookstore.Disabled && *e.DisabledReason == webhookstore.Failing
	})
	w.emit(t, company, 2, 3)
	waittest.Until(t, "the events about both at another endpoint", func() bool {
		w.assign(t)
		return len(other.messages()) >= 2
	})
	for _, r := range []*receiver{gone, failing} {
		r.setAnswer(nil)
		if _, err := w.Hooks.Enable(t.Context(), company, r.ID); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, "enabled again", func() bool {
			seen := map[string]bool{}
			for _, m := range r.messages() {
				seen[m.ID] = true
			}
			return len(seen) == 12
		})
		r.check(t, w, 12)
	}
}

// A 410 of an earlier URL, to a request that was in flight when the URL was changed, does not disable the endpoint: the
// event is delivered to the new URL.
func TestService_OldURLGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	before, after := w.endpoint(t, company), w.endpoint(t, company, "email.bounced")
	arrived, answer := make(chan struct{}), make(chan struct{})
	before.setAnswer(func(message) int {
		close(arrived)
		<-answer
		return http.StatusGone
	})
	w.start(t, nil)
	w.emit(t, company, 1, 1)
	<-arrived
	after.hook = before.hook
	if _, err := w.Hooks.Update(t.Context(), company, before.ID, webhookstore.Change{URL: &after.URL}); err != nil {
		t.Fatal(err)
	}
	close(answer)
	waittest.Until(t, "a result", func() bool { return len(after.messages()) == 1 || w.find(t, before).Status == webhookstore.Disabled })
	after.check(t, w, 1)
	if e := w.find(t, before); e.Status != webhookstore.Enabled || e.Failures != 0 || e.LastError != nil {
		t.Errorf("%+v", e)
	}
}

// One endpoint that hangs does not delay those of other companies.
func TestService_HangingEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	quiet, other := w.Company(t), w.Company(t)
	fast := w.endpoint(t, quiet, "email.received")
	w.start(t, func(p *webhook.Params) {
		p.Concurrency, p.ConcurrencyPerCompany = 8, 4
		p.Sender = webhook.NewSender(webhook.SenderParams{AllowPrivate: true, Timeout: 2 * waittest.Limit})
	})
	for range 5 {
		hanging := w.endpoint(t, other)
		done := make(chan struct{})
		t.Cleanup(func() { close(done) })
		hanging.setAnswer(func(message) int {
			<-done
			return http.StatusOK
		})
	}
	w.emit(t, other, 200, 3)
	for n := range 30 {
		w.emit(t, quiet, 1, 1)
		waittest.Until(t, "the event", func() bool { return len(fast.messages()) > n })
	}
}

// An endpoint whose cursor is older than the oldest event that is kept goes on with the events that
// are left, and the loss is counted.
func TestService_LostEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r := w.endpoint(t, company)
	w.emit(t, company, 3, 2)
	w.exec(t, `UPDATE event_feed SET created_at = now() - interval '31 days'`)
	if n, err := event.New(w.Store.DB()).Purge(t.Context(), 30*24*time.Hour, 100); err != nil || n != 2 {
		t.Fatalf("deleted %d, %v", n, err)
	}
	kept := w.emit(t, company, 1, 2)[0].String()
	registry := prometheus.NewRegistry()
	w.start(t, func(p *webhook.Params) { p.Metrics = webhook.NewMetrics(registry) })
	waittest.Until(t, "the events that are left", func() bool { return len(r.messages()) >= 2 })
	for i, m := range r.messages() {
		if want := kept + "." + strconv.Itoa(i+1); m.ID != want {
			t.Errorf("event %d came as %s, want %s", i, m.ID, want)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "webhook_events_expired_total" && f.GetMetric()[0].GetCounter().GetValue() != 1 {
			t.Errorf("%v", f)
		}
	}
}
