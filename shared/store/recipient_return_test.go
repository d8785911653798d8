package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
)

// A recipient whose message was lost goes back to the dispatcher, each time after twice as
// long; one that is stored, or was taken only now, does not.
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
		if n, next, err := d.Store.ReturnIntakes(t.Context(), 15*time.Minute, recipient.Intake{}, 10); n != want || err != nil || next != (recipient.Intake{}) {
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

// Each call looks at one page, and continues behind the last one: imports that wait do not hide a lost one, whatever
// their number.
func TestReturnIntakes_InPages(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	var people []recipient.NewRecipient
	for i := range 7 {
		people = append(people, storetest.KnownRecipient(fmt.Sprint(i), fmt.Sprintf("a%d@example.com", i), "Ana"))
	}
	storetest.Intake(t, d, company, people...)
	d.Run(t, `UPDATE email_outbox SET status = 'PUBLISHED', processed_at = now() - interval '20 min'
		WHERE id = (SELECT outbox_id FROM recipient_intakes ORDER BY recipient_id DESC LIMIT 1)`)
	var after recipient.Intake
	var found []int
	for {
		n, next, err := d.Store.ReturnIntakes(t.Context(), 15*time.Minute, after, 3)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, n)
		if after = next; after == (recipient.Intake{}) {
			break
		}
	}
	if want := []int{0, 0, 1}; !slices.Equal(found, want) {
		t.Errorf("%v were returned per page, want %v", found, want)
	}
}
