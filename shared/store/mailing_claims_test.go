package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/suppression"
)

// An email of a mailing has no deadline before its first attempt, and then the usual one.
func TestAdvance_DeadlineFromTheFirstAttemptOn(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, nil)
	storetest.OfMailing(t, d, company, id)
	run(t, d, `UPDATE email_outbox SET expires_at = now() + interval '10 years', attempts = 0`)
	claim := storetest.ClaimOf(company, id, uuid.New(), "C")
	claim.Renew = time.Hour
	storetest.Apply(t, d, claim)
	if !ask[bool](t, d, `SELECT attempts = 1 AND expires_at BETWEEN now() + interval '59 min' AND now() + interval '61 min' FROM email_outbox`) {
		t.Error("the attempt is not counted, or the deadline is not an hour away")
	}
	if !ask[bool](t, d, `SELECT expires_at < now() + interval '61 min' FROM email_logs`) {
		t.Error("the log has another deadline than the outbox row")
	}
}

// A recipient who is suppressed after an email was loaded and before its claim gets no email.
func TestAdvance_ClaimsNothingForSuppressed(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	single, bulk := d.Accept(t, company, nil), d.Accept(t, company, nil)
	storetest.OfMailing(t, d, company, bulk)
	claim := func(id uuid.UUID) bool {
		t.Helper()
		done, err := d.Store.Advance(t.Context(), storetest.ClaimOf(company, id, uuid.New(), "C"))
		if err != nil {
			t.Fatal(err)
		}
		return done.Applied
	}
	suppress := func(reason suppression.Reason) {
		t.Helper()
		if err := d.Store.Suppress(t.Context(), company, suppression.Suppression{Address: "Ana@Example.com", Reason: reason}); err != nil {
			t.Fatal(err)
		}
	}
	suppress(suppression.Unsubscribed)
	if claim(bulk) {
		t.Error("an email of a mailing was claimed for an unsubscribed recipient")
	}
	suppress(suppression.Bounced)
	if claim(single) {
		t.Error("an email was claimed for an address that has bounced")
	}
	run(t, d, `DELETE FROM suppressions WHERE reason = 'BOUNCE'`)
	if !claim(single) {
		t.Error("a single email was not claimed for an unsubscribed recipient")
	}
}

// Emails of a cancelled mailing cannot be replayed one by one.
func TestAdvance_NoReplayOfACancelledMailing(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, nil)
	storetest.OfMailing(t, d, company, id)
	storetest.Apply(t, d, storetest.CancelOf(id))
	replay := outbox.Transition{
		ID: id, Guard: outbox.GuardReplay, Status: email.Pending, Renew: time.Hour,
		Events: []email.Event{{Type: email.EventReplayed, At: time.Now()}},
	}
	run(t, d, `UPDATE mailings SET status = 'CANCELLED'`)
	if done, err := d.Store.Advance(t.Context(), replay); err != nil || done.Applied {
		t.Errorf("%+v, %v", done, err)
	}
	run(t, d, `UPDATE mailings SET status = 'SENDING'`)
	storetest.Apply(t, d, replay)
}

// An email does not overwrite recipient data that was accepted after it.
func TestAdvance_OlderThanWhatIsKnown(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	older := uuid.Must(uuid.NewV7())
	person := recipient.ID(company, "C-1", "", "old@example.com")
	newer := uuid.Must(uuid.NewV7())
	run(t, d, `INSERT INTO recipients (id, company_id, external_id, email, intake_id) VALUES ($1, $2, 'C-1', 'new@example.com', $3)`, person, company, newer)
	id := d.Accept(t, company, func(e *outbox.NewEmail) {
		e.ID = older
		e.Job.OutboxID, e.Job.HTMLRef = older.String(), older.String()
	})
	claim := storetest.ClaimOf(company, id, uuid.New(), "C-1")
	claim.Recipient = &recipient.Recipient{ID: person, ExternalID: "C-1", Email: "old@example.com"}
	storetest.Apply(t, d, claim)
	if got := ask[string](t, d, `SELECT email FROM recipients WHERE id = $1`, person); got != "new@example.com" {
		t.Errorf("the recipient is at %s", got)
	}
}
