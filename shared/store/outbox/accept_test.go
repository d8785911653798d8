package outbox_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/storetest"
)

// A scheduled email has its log from acceptance on, and an email that is due has none, in the same group.
func TestAccept_LogsScheduledEmails(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, db := d.Company(t), d.Store.DB()
	scheduled := func(e *outbox.NewEmail) {
		e.SendAt, e.RequestID, e.Job.Tags = time.Now().Add(48*time.Hour), "req-1", []string{"a", "b"}
	}
	logged := func(id uuid.UUID) bool {
		return storetest.Ask[bool](t, d, `SELECT EXISTS (SELECT FROM email_logs WHERE outbox_id = $1)`, id)
	}
	// A group of both kinds is one statement.
	group := []outbox.NewEmail{storetest.NewEmail(company, scheduled), storetest.NewEmail(company, nil)}
	if inserted, err := outbox.InsertEmails(t.Context(), outbox.New(db, idempotency.New(db), quota.New(db)), group); err != nil || !inserted[0] || !inserted[1] {
		t.Fatal(inserted, err)
	}
	if !logged(group[0].ID) || logged(group[1].ID) {
		t.Error("in one group: not the scheduled one alone is logged")
	}
}
