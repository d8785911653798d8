package webhook_test

import (
	"net/http"
	"testing"
	"time"

	webhookstore "email-gateway/shared/store/webhook"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/webhook"
)

// Deliveries that wait for their next attempt, hours away, are attempted at a new URL at once.
func TestService_NewURL(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	before, after := w.endpoint(t, company), w.endpoint(t, company, "email.bounced")
	before.setAnswer(func(message) int { return http.StatusNotFound })
	w.emit(t, company, 1, 3)
	w.start(t, func(p *webhook.Params) { p.Schedule = scaled(1000 * time.Hour) })
	waittest.Until(t, "three open deliveries", func() bool { return w.find(t, before).Open == 3 })
	after.hook = before.hook // the endpoint keeps its secret
	if _, err := w.Hooks.Update(t.Context(), company, before.ID, webhookstore.Change{URL: &after.URL}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "all events", func() bool { return len(after.messages()) == 3 })
	after.check(t, w, 3)
}
