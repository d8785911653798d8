package webhook_test

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/storetest"
	webhookstore "email-gateway/shared/store/webhook"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/webhook"
)

// refusing makes an endpoint that answers with the status to the events of some emails, and with 200 to others.
func (w *world) refusing(t *testing.T, company uuid.UUID, status int) (r *receiver, refuse func(emails []uuid.UUID)) {
	t.Helper()
	r = w.endpoint(t, company, "email.received")
	var mu sync.Mutex
	var refused []string
	r.setAnswer(func(m message) int {
		mu.Lock()
		defer mu.Unlock()
		if slices.Contains(refused, m.Email) {
			return status
		}
		return http.StatusOK
	})
	return r, func(emails []uuid.UUID) {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range emails {
			refused = append(refused, id.String())
		}
	}
}

// emitRefused writes emails whose events the endpoint refuses.
func (w *world) emitRefused(t *testing.T, company uuid.UUID, emails int, refuse func([]uuid.UUID)) {
	t.Helper()
	refuse(w.insert(t, company, emails, 1))
	w.assign(t)
}

// waitOpen waits until n failed events are recorded.
func (w *world) waitOpen(t *testing.T, r *receiver, n int) {
	t.Helper()
	waittest.Until(t, "the failed events", func() bool { return w.find(t, r).Open >= n })
}

// Events that the endpoint refuses, one after the other or between those that it accepts, do not delay others.
func TestService_RefusedEvents(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			company := w.Company(t)
			r, refuse := w.refusing(t, company, status)
			w.start(t, nil)
			const refused, accepted = 3 * webhookstore.DownFailures, 20
			w.emitRefused(t, company, refused, refuse)
			w.waitOpen(t, r, refused)
			if e := w.find(t, r); e.Down() || e.Health() != "failing" || e.FailingSince == nil || *e.LastError != "HTTP_"+strconv.Itoa(status) {
				t.Errorf("%+v", e)
			}
			w.emit(t, company, accepted, 1)
			waittest.Until(t, "the other events", func() bool { return len(r.messages()) == accepted })
			if rows := w.deliveries(t, r, webhookstore.Retrying); len(rows) != refused {
				t.Errorf("%d refused deliveries are open", len(rows))
			}
		})
	}
}

// An endpoint that fails for some events is down after ten of them. It is probed with the next new event, not with those
// that fail, and gets all others as soon as it accepts one, also while deliveries that fail are retried.
func TestService_ProbeWithNewEvent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		probe  time.Duration
		enable bool
	}{
		"after the probe interval": {probe: 100 * time.Millisecond},
		"after it was enabled":     {probe: time.Hour, enable: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			company := w.Company(t)
			r, refuse := w.refusing(t, company, http.StatusInternalServerError)
			s := w.start(t, func(p *webhook.Params) { p.Schedule, p.ProbeAfter = hours, time.Hour })
			w.emitRefused(t, company, webhookstore.DownFailures, refuse)
			waittest.Until(t, "down", func() bool { return w.find(t, r).Down() })
			if err := s.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.exec(t, `UPDATE webhook_deliveries SET created_at = now() - interval '2 h'`)
			const accepted = 30
			w.emit(t, company, accepted, 1)
			if tt.enable {
				if _, err := w.Hooks.Enable(t.Context(), company, r.ID); err != nil {
					t.Fatal(err)
				}
			} else {
				w.exec(t, `UPDATE webhook_endpoints SET last_failure_at = now() - interval '2 h'`)
			}
			w.start(t, func(p *webhook.Params) { p.Schedule, p.ProbeAfter = hours, tt.probe })
			waittest.Until(t, "the other events", func() bool { return len(r.messages()) == accepted })
			r.check(t, w, accepted)
		})
	}
}

// Retries of deliveries for which the endpoint fails do not postpone the probe with a new event.
func TestService_ProbeDespiteRetries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r, refuse := w.refusing(t, company, http.StatusInternalServerError)
	w.start(t, func(p *webhook.Params) { p.Schedule, p.ProbeAfter = scaled(time.Hour), time.Hour })
	w.emitRefused(t, company, webhookstore.DownFailures, refuse)
	waittest.Until(t, "down", func() bool { return w.find(t, r).Down() })
	w.emit(t, company, 5, 1)
	w.exec(t, `UPDATE webhook_deliveries SET created_at = now() - interval '2 h', next_at = now(), scheduled_at = now()`)
	w.exec(t, `UPDATE webhook_endpoints SET due_at = now()`)
	waittest.Until(t, "the other events", func() bool { return len(r.messages()) == 5 })
}

// More refused deliveries than may be open stop new events only until some of them are refused again: those end without
// their later attempts if the endpoint has accepted others in between. An attempt before the scheduled time ends none.
func TestService_RefusedAtMaxOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r, refuse := w.refusing(t, company, http.StatusUnprocessableEntity)
	w.start(t, func(p *webhook.Params) { p.Schedule = hours })
	const accepted = 5
	w.emitRefused(t, company, webhookstore.MaxOpen+150, refuse)
	w.emit(t, company, accepted, 1)
	w.waitOpen(t, r, webhookstore.MaxOpen)
	if _, err := w.Hooks.CreateTest(t.Context(), company, r.ID, uuid.Must(uuid.NewV7())); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "a success", func() bool { return w.find(t, r).LastSuccessAt != nil })
	attempts := len(r.attempts())
	w.exec(t, `UPDATE webhook_deliveries SET next_at = now(), scheduled_at = now() + interval '1 hour' WHERE id = (SELECT id FROM webhook_deliveries WHERE status = 'RETRYING' LIMIT 1)`)
	waittest.Until(t, "an early attempt", func() bool {
		w.exec(t, `UPDATE webhook_endpoints SET due_at = now() WHERE lease_token IS NULL`)
		return len(r.attempts()) > attempts && storetest.Ask[bool](t, w.Database, `SELECT bool_and(lease_token IS NULL) FROM webhook_endpoints`)
	})
	if n := len(w.deliveries(t, r, webhookstore.Failed)); n > 0 {
		t.Errorf("%d deliveries ended after one attempt that counts", n)
	}
	waittest.Until(t, "the other events", func() bool {
		w.exec(t, `
UPDATE webhook_deliveries SET next_at = now(), scheduled_at = NULL, attempts = 1
WHERE status = 'RETRYING' AND NOT EXISTS (SELECT FROM webhook_deliveries WHERE next_at <= now())
    AND NOT EXISTS (SELECT FROM webhook_endpoints WHERE lease_token IS NOT NULL OR open_deliveries < $1)`, webhookstore.MaxOpen)
		w.exec(t, `UPDATE webhook_endpoints SET due_at = now() WHERE lease_token IS NULL`)
		return len(r.messages()) >= accepted
	})
	for _, d := range w.deliveries(t, r, webhookstore.Failed) {
		if d.Attempts < 2 || *d.LastError != "HTTP_422" {
			t.Fatalf("%+v", d)
		}
	}
}

// Responses that say the same about every request are no refusals.
func TestOutcome_Refused(t *testing.T) {
	t.Parallel()
	var others []int
	for status := 300; status < 600; status++ {
		if o := (webhook.Outcome{Status: status}); o.Refused() != (status/100 == 4) {
			others = append(others, status)
		}
	}
	if want := []int{401, 402, 403, 405, 407, 408, 410, 421, 425, 426, 429}; !slices.Equal(others, want) {
		t.Errorf("%v, want %v", others, want)
	}
}
