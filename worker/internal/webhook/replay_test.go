package webhook_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	webhookstore "email-gateway/shared/store/webhook"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/webhook"
)

// A replay has all events of its range, also those of a row of the feed that has more than a page.
func TestService_ReplayOfMoreThanPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	w.emit(t, company, 250, 2)
	r := w.endpoint(t, company)
	since, until := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	replay := webhookstore.Replay{ID: uuid.Must(uuid.NewV7()), EndpointID: r.ID, CompanyID: company, Since: &since, Until: &until}
	if _, err := w.Hooks.CreateReplay(t.Context(), replay); err != nil {
		t.Fatal(err)
	}
	w.emit(t, company, 1, 1) // does not belong to it
	w.start(t, nil)
	waittest.Until(t, "the end of the replay", func() bool {
		done, err := w.Hooks.FindReplay(t.Context(), company, r.ID, replay.ID)
		return err == nil && done.Status == webhookstore.ReplayCompleted
	})
	done, err := w.Hooks.FindReplay(t.Context(), company, r.ID, replay.ID)
	if err != nil || done.Done != 500 {
		t.Errorf("%d events of 500, %v", done.Done, err)
	}
	waittest.Until(t, "the new event", func() bool { return len(r.messages()) >= 501 })
	r.check(t, w, 501)
}

// down makes an endpoint that is down, without open deliveries and with one that has failed.
func (w *world) down(t *testing.T, company uuid.UUID) *receiver {
	t.Helper()
	r := w.endpoint(t, company)
	r.setAnswer(func(message) int { return http.StatusInternalServerError })
	w.emit(t, company, 1, 1)
	s := w.start(t, func(p *webhook.Params) { p.Schedule = scaled(10 * time.Millisecond) })
	waittest.Until(t, "the last attempt", func() bool {
		e := w.find(t, r)
		return e.Down() && e.Open == 0 && len(w.deliveries(t, r, webhookstore.Failed)) == 1
	})
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.setAnswer(nil)
	return r
}

// A replay for an endpoint that was down for so long that nothing is attempted any more is processed, also if
// its company has no new event.
func TestService_ReplayAfterLongOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r := w.down(t, company)
	if _, err := w.Hooks.CreateReplay(t.Context(), webhookstore.Replay{ID: uuid.Must(uuid.NewV7()), EndpointID: r.ID, CompanyID: company}); err != nil {
		t.Fatal(err)
	}
	w.start(t, nil)
	waittest.Until(t, "the replay", func() bool { return len(r.messages()) == 1 && !w.find(t, r).Down() })
}

// A failed delivery whose event a replay of a range delivers is no longer failed: a replay of failed deliveries does not send
// it again. One that fails again is open with its attempts from the start.
func TestService_ReplayOfFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r := w.endpoint(t, company, "email.received")
	r.setAnswer(func(message) int { return http.StatusUnprocessableEntity })
	s := w.start(t, func(p *webhook.Params) { p.Schedule = email.Backoff{time.Millisecond} })
	const events = 5
	w.emit(t, company, events, 1)
	waittest.Until(t, "the last attempts", func() bool { return len(w.deliveries(t, r, webhookstore.Failed)) == events })
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := w.deliveries(t, r, webhookstore.Failed)[0].EventID
	r.setAnswer(func(m message) int {
		if m.ID == again {
			return http.StatusUnprocessableEntity
		}
		return http.StatusOK
	})
	w.start(t, nil)
	since, until := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	replays := []webhookstore.Replay{{ID: uuid.Must(uuid.NewV7()), Since: &since, Until: &until}, {ID: uuid.Must(uuid.NewV7())}}
	for _, replay := range replays {
		replay.EndpointID, replay.CompanyID = r.ID, company
		if _, err := w.Hooks.CreateReplay(t.Context(), replay); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, "the replay", func() bool {
			done, err := w.Hooks.FindReplay(t.Context(), company, r.ID, replay.ID)
			return err == nil && done.Status == webhookstore.ReplayCompleted
		})
	}
	waittest.Until(t, "the end of the round", func() bool { return w.find(t, r).Open == 1 })
	if n := len(r.messages()); n != events-1 {
		t.Errorf("%d requests delivered %d events", n, events-1)
	}
	for _, d := range w.deliveries(t, r, webhookstore.Delivered) {
		if d.EventID == again || d.LastError != nil || *d.LastStatus != http.StatusOK || d.Attempts != 3 {
			t.Errorf("%+v", d)
		}
	}
	if all := w.deliveries(t, r, ""); len(all) != events || len(w.deliveries(t, r, webhookstore.Delivered)) != events-1 {
		t.Errorf("%+v", all)
	}
}

// An endpoint that asks to be left alone gets no request of a replay that is running either.
func TestService_RetryAfterDuringReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r := w.endpoint(t, company)
	r.after = "3600"
	// The first round is the replay's first page. The second one, of new events, has the same events.
	const page = 100
	var attempts atomic.Int32
	r.setAnswer(func(message) int {
		if attempts.Add(1) == page+1 {
			return http.StatusTooManyRequests
		}
		return http.StatusOK
	})
	w.emit(t, company, 2*page, 1)
	since, until := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if _, err := w.Hooks.CreateReplay(t.Context(), webhookstore.Replay{ID: uuid.Must(uuid.NewV7()), EndpointID: r.ID, CompanyID: company, Since: &since, Until: &until}); err != nil {
		t.Fatal(err)
	}
	w.start(t, nil)
	waittest.Until(t, "the answer is recorded and the lease given up", func() bool {
		var free bool
		if err := w.SQL.QueryRowContext(t.Context(), `SELECT not_before > now() AND lease_token IS NULL FROM webhook_endpoints WHERE id = $1`, r.ID).Scan(&free); err != nil {
			return false // not_before is NULL
		}
		return free
	})
	first := map[string]bool{}
	for i, m := range r.attempts() {
		if i < page {
			first[m.ID] = true
		} else if !first[m.ID] {
			t.Errorf("request %d, of the replay, after the endpoint asked to be left alone", i+1)
		}
	}
}
