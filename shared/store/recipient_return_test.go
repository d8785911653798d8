package store_test

import (
	"testing"
	"time"

	"email-gateway/shared/store/storetest"
)

// A recipient whose message was lost goes back to the dispatcher, each time after twice as
// long; one that is written down, or was taken only now, does not.
func TestReturnIntakes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	ids := storetest.Intake(t, d, company, storetest.KnownRecipient("1", "a@example.com", "Ana"), storetest.KnownRecipient("2", "b@example.com", "Bia"), storetest.KnownRecipient("3", "c@example.com", "Caio"))
	lost, written, fresh := ids[0], ids[1], ids[2]
	publish := func(age string) {
		t.Helper()
		if _, err := d.SQL.ExecContext(t.Context(), `UPDATE email_outbox SET status = 'PUBLISHED', processed_at = now() - $1::interval WHERE target = 'recipients.upsert'`, age); err != nil {
			t.Fatal(err)
		}
	}
	returned := func(want int, when string) {
		t.Helper()
		if n, err := d.Store.ReturnIntakes(t.Context(), 15*time.Minute, 10); n != want || err != nil {
			t.Errorf("%s: %d returned, want %d (%v)", when, n, want, err)
		}
	}
	publish("20 min")
	if _, err := d.SQL.ExecContext(t.Context(), `UPDATE email_outbox SET processed_at = now() WHERE id = $1`, fresh); err != nil {
		t.Fatal(err)
	}
	storetest.Upsert(t, d, written)
	returned(1, "after 20 minutes")
	if status := ask[string](t, d, `SELECT status FROM email_outbox WHERE id = $1 AND processed_at IS NULL AND next_at <= now()`, lost); status != "PENDING" {
		t.Errorf("the lost one is %q", status)
	}
	storetest.Upsert(t, d, fresh)
	publish("20 min")
	returned(0, "20 minutes after the second time")
	publish("31 min")
	returned(1, "31 minutes after the second time")
	storetest.Upsert(t, d, lost, lost)
	publish("100 h")
	returned(0, "all are written down")
}
