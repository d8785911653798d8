package mailing_test

import (
	"testing"
	"time"

	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/storetest"
)

// A mailing uses the rest of the day's quota, waits without failures, shows why and until when, and
// continues on the next day.
func TestProcessor_WaitsForDailyQuota(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, _ := b.mailing(t, many(5)...)
	b.limitEmailsPerDay(t, 3)
	p := b.params()
	p.BatchSize = 2
	if err := handle(t.Context(), p, taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	waits := func() mailingstore.Waiting {
		t.Helper()
		m, err := b.Store.FindMailing(t.Context(), b.company, id)
		if err != nil {
			t.Fatal(err)
		}
		return m.WaitsFor(time.Now())
	}
	b.want(t, "QUEUED QUEUED QUEUED PENDING PENDING", `SELECT string_agg(status, ' ' ORDER BY id) FROM mailing_entries`)
	b.want(t, "QUEUED 3 2 0", `SELECT concat_ws(' ', status, processed_lines, generation, attempts) FROM mailings`)
	midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	if w := waits(); w.For != quota.EmailsPerDay || !w.Until.Equal(midnight) {
		t.Errorf("it waits for %+v, want %v", w, midnight)
	}
	b.want(t, "true", `SELECT (next_at > now() + interval '1 s' AND next_at <= now() + interval '1 min')::text FROM email_outbox WHERE target = 'mailing.process'`)

	// It checks again, and still waits.
	if err := handle(t.Context(), p, taskOf(id, 2)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "3", `SELECT count(*)::text FROM email_outbox WHERE target = 'email:send'`)

	// The next day.
	b.exec(t, `UPDATE quota_deltas SET day = day - 1`)
	if err := handle(t.Context(), p, taskOf(id, 3)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "SENDING 5", `SELECT concat_ws(' ', status, processed_lines) FROM mailings`)
	b.want(t, "0", `SELECT count(*)::text FROM mailing_entries WHERE status <> 'QUEUED'`)
	b.want(t, "0", `SELECT count(*)::text FROM dead_letters`)
	if w := waits(); w.For != "" {
		t.Errorf("it waits for %+v", w)
	}
	b.exec(t, `DELETE FROM email_outbox WHERE target = 'email:send'`)
}

// With the maximum number of recipients, a company's mailings are sent and create none.
func TestProcessor_NoRoomForRecipients(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, _ := b.mailing(t, many(3)...)
	two := int64(2)
	if err := b.Store.SetQuotas(t.Context(), storetest.Operator(), b.company, map[quota.Quota]*int64{quota.Recipients: &two}); err != nil {
		t.Fatal(err)
	}
	if err := handle(t.Context(), b.params(), taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "3", `SELECT count(*)::text FROM email_outbox WHERE target = 'email:send' AND payload #> '{recipient,recipientId}' = 'null'`)
	b.want(t, "0", `SELECT count(*)::text FROM recipients`)
}

// While the reputation guard has paused its company's mailings a mailing makes no emails, and looks again
// each 10 s.
func TestProcessor_PausedByReputation(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, _ := b.mailing(t, many(5)...)
	b.exec(t, `UPDATE companies SET mailings_paused_at = now()`)
	if err := handle(t.Context(), b.params(), taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "QUEUED 0 2 0", `SELECT concat_ws(' ', status, processed_lines, generation, attempts) FROM mailings`)
	b.want(t, "0", `SELECT count(*)::text FROM email_outbox WHERE target = 'email:send'`)
	b.want(t, "true", `SELECT (next_at > now() - interval '3 min' AND next_at <= now() + interval '10 s')::text FROM email_outbox WHERE target = 'mailing.process'`)
	b.exec(t, `UPDATE companies SET mailings_paused_at = NULL`)
	if err := handle(t.Context(), b.params(), taskOf(id, 2)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "SENDING 5", `SELECT concat_ws(' ', status, processed_lines) FROM mailings`)
	b.exec(t, `DELETE FROM email_outbox WHERE target = 'email:send'`)
}
