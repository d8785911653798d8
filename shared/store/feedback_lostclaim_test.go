package store_test

import (
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/feedback"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/suppression"
)

// A standby was promoted that had not received the claim of an attempt. SES's report about that attempt is applied, also before
// the worker records SENT, after the outbox row is purged, and if another worker sends the email again or has sent it.
func TestRecordFeedback_LostClaim(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	none := func(*testing.T, uuid.UUID, uuid.UUID, uuid.UUID) {}
	recorded := func(t *testing.T, _, id, lost uuid.UUID) { storetest.Apply(t, d, storetest.SentOf(id, lost)) }
	claimed := func(t *testing.T, company, id, _ uuid.UUID) {
		storetest.Apply(t, d, storetest.ClaimOf(company, id, uuid.New(), "C"))
	}
	tests := []struct {
		name          string
		before, after func(t *testing.T, company, id, lost uuid.UUID)
		want          string
		duplicate     bool
	}{
		{"nothing recorded", none, none, "SENT BOUNCED", false},
		{"before the worker records SENT", none, func(t *testing.T, _, id, lost uuid.UUID) {
			if done, err := d.Store.Advance(t.Context(), storetest.SentOf(id, lost)); err != nil || done.Applied || !done.SameToken {
				t.Errorf("%+v, %v", done, err)
			}
		}, "SENT BOUNCED", false},
		{"after the worker has recorded SENT", recorded, none, "SENT BOUNCED", false},
		{"after the purge", func(t *testing.T, company, id, lost uuid.UUID) {
			recorded(t, company, id, lost)
			run(t, d, `DELETE FROM email_outbox WHERE id = $1`, id)
		}, none, "SENT BOUNCED", false},
		{"cancelled", func(t *testing.T, _, id, _ uuid.UUID) { storetest.Apply(t, d, storetest.CancelOf(id)) }, none, "CANCELLED SENT BOUNCED", false},
		{"sent again", func(t *testing.T, company, id, _ uuid.UUID) {
			again := storetest.SentOf(id, uuid.New())
			again.SESMessageID = "ses-again"
			storetest.Apply(t, d, storetest.ClaimOf(company, id, again.Token, "C"), again)
		}, none, tried + "SENT DUPLICATE_CONFIRMED BOUNCED", true},
		{"being sent again", claimed, none, tried + "SENT BOUNCED", true},
		{"recorded as SENT while being sent again", func(t *testing.T, company, id, lost uuid.UUID) {
			claimed(t, company, id, lost)
			recorded(t, company, id, lost)
		}, none, tried + "SENT BOUNCED", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			company := d.Company(t) // of its own: the bounce suppresses the address
			id, lost := d.Accept(t, company, nil), uuid.New()
			tt.before(t, company, id, lost)
			f := deliveryReport(company, id, lost, func(f *feedback.Feedback) {
				f.Event, f.Suppress, f.Addresses = email.EventBounced, suppression.Bounced, []string{"ana@example.com"}
			})
			if r := recordFeedback(t, d, f); r.Unmatched || r.Repeated {
				t.Fatalf("%+v", r)
			}
			tt.after(t, company, id, lost)
			if got := story(t, d, id); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			shown, err := d.Store.FindEmail(t.Context(), company, id)
			if err != nil || shown.Status != email.Sent || shown.PossibleDuplicate != tt.duplicate {
				t.Errorf("%+v, %v", shown, err)
			}
			if n := ask[int](t, d, `SELECT count(*) FROM suppressions WHERE company_id = $1 AND address = 'ana@example.com'`, company); n != 1 {
				t.Errorf("%d suppressions", n)
			}
		})
	}
}
