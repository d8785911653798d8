package maintenance_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/maintenance"
)

func TestRecipientRescuer(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	accept := func(address string) uuid.UUID {
		t.Helper()
		id := uuid.Must(uuid.NewV7())
		err := d.Store.AcceptRecipients(t.Context(), recipient.NewRecipients{CompanyID: company, RequestID: "req-1", CreatedAt: time.Now(), Recipients: []recipient.NewRecipient{
			{OutboxID: id, Recipient: recipient.Recipient{ID: recipient.ID(company, "", "", address), Email: address}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	lost, published := accept("ana@example.com"), accept("bia@example.com")
	set(t, d, lost, `status = 'PUBLISHED', processed_at = now() - interval '16 min'`)
	set(t, d, published, `status = 'PUBLISHED', processed_at = now() - interval '14 min'`)

	registry := prometheus.NewRegistry()
	run(t, maintenance.NewRecipientRescuer(maintenance.RecipientRescuerParams{
		Log: slog.New(slog.DiscardHandler), Store: d.Store, Actions: maintenance.NewActions(registry),
	}))
	waittest.Until(t, "the lost recipient waits for the dispatcher", func() bool { return status(t, d, lost) == email.Pending })
	if is := status(t, d, published); is != "PUBLISHED" {
		t.Errorf("the one still in flight is %s", is)
	}
	waittest.Until(t, "it is counted", func() bool { return actionCount(t, registry, "intake_returned") == 1 })
}

// ages records the age at which recipients count as lost.
type ages chan time.Duration

func (a ages) ReturnIntakes(_ context.Context, age time.Duration, _ recipient.Intake, _ int) (returned int, next recipient.Intake, err error) {
	a <- age
	return 0, recipient.Intake{}, nil
}

func (ages) Wake(context.Context) error { return nil }

// A recipient whose message still waits for its retries does not count as lost.
func TestRecipientRescuer_LongRetries(t *testing.T) {
	t.Parallel()
	for retries, want := range map[time.Duration]time.Duration{40 * time.Second: 15 * time.Minute, 20 * time.Minute: 25 * time.Minute} {
		asked := make(ages, 1)
		run(t, maintenance.NewRecipientRescuer(maintenance.RecipientRescuerParams{
			Log: slog.New(slog.DiscardHandler), Store: asked, Actions: maintenance.NewActions(prometheus.NewRegistry()), Retries: retries,
		}))
		if age := <-asked; age != want {
			t.Errorf("with retries of %s, a recipient is lost after %s, want %s", retries, age, want)
		}
	}
}

func actionCount(t *testing.T, registry *prometheus.Registry, action string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if labels := m.GetLabel(); len(labels) == 1 && labels[0].GetValue() == action {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}
