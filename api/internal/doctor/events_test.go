package doctor_test

import (
	"fmt"
	"testing"

	"email-gateway/api/internal/doctor"
)

// Events of SES that used to come, or are configured, and do not although emails are sent are reported.
func TestExamine_EventsMissing(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	send := func(n int, ago string) {
		t.Helper()
		exec(t, d, fmt.Sprintf(`INSERT INTO event_feed (company_id, email_ids, first_seqs, last_seqs, sent, created_at)
			SELECT (SELECT id FROM companies), ARRAY[gen_random_uuid()], '{1}', '{1}', 1, now() - interval '%s' FROM generate_series(1, %d)`, ago, n))
	}
	event := func(kind, ago string) {
		t.Helper()
		exec(t, d, fmt.Sprintf(`INSERT INTO ses_events (sns_message_id, kind, received_at) VALUES (gen_random_uuid(), '%s', now() - interval '%s')`, kind, ago))
	}
	wants(t, "nothing is sent", doctor.Examine(t.Context(), p))
	send(1999, "3 h")
	send(1999, "1 min") // their events may still come
	wants(t, "too few for bounces", doctor.Examine(t.Context(), p))
	send(1, "3 h")
	wants(t, "no event ever", doctor.Examine(t.Context(), p), "failure sesEvents: No event of SES has arrived in the last 30 days, although at least 2000 emails were sent")
	send(20_001, "2 min")
	wants(t, "many of the last minutes", doctor.Examine(t.Context(), p), "failure sesEvents: No event of SES has arrived in the last 30 days, although at least 2000 emails were sent")
	event("Bounce", "2 h")
	wants(t, "an event after them", doctor.Examine(t.Context(), p))
	send(1999, "1 h")
	wants(t, "too few since a bounce", doctor.Examine(t.Context(), p))
	event("Delivery", "150 min")
	wants(t, "many after a delivery", doctor.Examine(t.Context(), p), "failure sesEvents: No event of SES has arrived since 20")
	event("Delivery", "30 min")
	send(99, "20 min")
	wants(t, "few after a delivery", doctor.Examine(t.Context(), p))
	send(1, "20 min")
	wants(t, "enough after a delivery", doctor.Examine(t.Context(), p), "failure sesEvents: No event of SES has arrived since 20")
}

// Emails that SES did not send because of the account's suppression list are reported for a day.
func TestExamine_AccountSuppression(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	event := func(kind, payload, ago string) {
		t.Helper()
		exec(t, d, fmt.Sprintf(`INSERT INTO ses_events (sns_message_id, kind, payload, received_at) VALUES (gen_random_uuid(), '%s', '%s', now() - interval '%s')`, kind, payload, ago))
	}
	event("Bounce", `{"bounceType":"Permanent","bounceSubType":"General"}`, "1 min")
	event("Bounce", `{"bounceType":"Permanent","bounceSubType":"OnAccountSuppressionList"}`, "25 h")
	event("Delivery", `{}`, "1 min")
	wants(t, "none of the last day", doctor.Examine(t.Context(), p))
	event("Bounce", `{"bounceType":"Permanent","bounceSubType":"OnAccountSuppressionList"}`, "1 h")
	event("Complaint", `{"complaintSubType":"OnAccountSuppressionList"}`, "2 h")
	wants(t, "two", doctor.Examine(t.Context(), p), "warning sesEvents: SES did not send 2 emails of the last day")
}
