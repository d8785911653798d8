package store_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// A slow worker reports the provider's rejection after the rescuer has declared its attempt's outcome unknown: the rejection is
// applied. An unknown outcome changes nothing, and neither does the rejection of another attempt.
func TestAdvance_RefusalOfAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	refusal := func(status email.Status, event email.EventType) outbox.Transition {
		return outbox.Transition{
			Status: status, ErrorCode: "SES_MESSAGE_REJECTED", DeadLetter: status == email.Failed, Delay: time.Minute,
			Events: []email.Event{{Type: event, At: time.Now()}},
		}
	}
	unknown := refusal(email.Failed, email.EventFailed)
	unknown.OutcomeUnknown = true
	for name, tt := range map[string]struct {
		end   outbox.Transition
		other bool // another attempt's
		want  email.Status
	}{
		"refused for good":        {refusal(email.Failed, email.EventFailed), false, email.Failed},
		"refused for now":         {refusal(email.RetryScheduled, email.EventRetryScheduled), false, email.RetryScheduled},
		"still unknown":           {unknown, false, email.OutcomeUnknown},
		"given back":              {refusal(email.Pending, email.EventReleased), false, email.OutcomeUnknown},
		"refused, of an old call": {refusal(email.Failed, email.EventFailed), true, email.OutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id, token := d.Accept(t, company, nil), uuid.New()
			storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"))
			run(t, d, `UPDATE email_outbox SET lease_until = now() - interval '1 s' WHERE id = $1`, id)
			storetest.Apply(t, d, outbox.Transition{
				ID: id, Guard: outbox.GuardAbandoned, Token: token, Status: email.OutcomeUnknown, Delay: time.Hour, OutcomeUnknown: true,
				Events: []email.Event{{Type: email.EventOutcomeUnknown, At: time.Now()}},
			})
			end := tt.end
			end.ID, end.Guard, end.Token = id, outbox.GuardAttempt, token
			if tt.other {
				end.Token = uuid.New()
			}
			got, err := d.Store.Advance(t.Context(), end)
			if err != nil || got.Applied != (tt.want != email.OutcomeUnknown) || got.Status != tt.want {
				t.Fatalf("%+v, %v", got, err)
			}
			shown, err := d.Store.FindEmail(t.Context(), company, id)
			if err != nil || shown.Status != tt.want || shown.PossibleDuplicate {
				t.Errorf("%+v, %v", shown, err)
			}
			moved, err := d.Store.Advance(t.Context(), outbox.Transition{
				ID: id, Guard: outbox.GuardUnresolved, Token: token, Status: email.RetryScheduled, Events: end.Events,
			})
			if err != nil || moved.Applied {
				t.Errorf("an unknown outcome was resolved too early, or twice: %+v, %v", moved, err)
			}
		})
	}
}

// The scans for abandoned claims and lost tasks begin at a deadline, and return the earliest of the emails in their status. While
// an old snapshot keeps the index entries of emails that were sent, a scan from this deadline on reads none of these.
func TestRescueScans_BoundBesideAnOldSnapshot(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	like := d.Accept(t, company, nil)
	run(t, d, `
		INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, next_at, enqueued_at, expires_at, status, claim_token, lease_until)
		SELECT gen_random_uuid(), company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, next_at, now() - interval '1 hour', now() + interval '23 hours',
			open.status, gen_random_uuid(), CASE open.status WHEN 'PROCESSING' THEN now() - interval '1 hour' END
		FROM email_outbox, generate_series(1, 3000), unnest('{ENQUEUED,PROCESSING}'::text[]) open(status) WHERE id = $1`, like)
	run(t, d, `DELETE FROM email_outbox WHERE id = $1`, like)
	snapshot, err := d.SQL.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Rollback()
	if _, err := snapshot.ExecContext(t.Context(), `SELECT count(*) FROM email_outbox`); err != nil {
		t.Fatal(err)
	}
	run(t, d, `UPDATE email_outbox SET status = 'SENT', processed_at = now(), lease_until = NULL`)
	run(t, d, `VACUUM ANALYZE email_outbox`)
	for _, status := range []string{"ENQUEUED", "PROCESSING"} {
		for _, expires := range []string{"24 hours", "25 hours"} {
			run(t, d, `
				INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, next_at, enqueued_at, expires_at, status, claim_token, lease_until)
				SELECT gen_random_uuid(), company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, next_at, now() - interval '1 hour', now() + $2::interval,
					$1, gen_random_uuid(), CASE $1 WHEN 'PROCESSING' THEN now() - interval '1 hour' END
				FROM email_outbox LIMIT 1`, status, expires)
		}
	}
	if found, err := d.Store.LongEnqueued(t.Context(), time.Minute, uuid.Nil, 10, time.Now().Add(48*time.Hour)); err != nil || found.DueIn != time.Minute {
		t.Errorf("none are read: %+v, %v", found, err)
	}
	found, err := d.Store.LongEnqueued(t.Context(), time.Minute, uuid.Nil, 10, time.Time{})
	if err != nil || len(found.Long) != 2 || found.DueIn != 0 {
		t.Fatalf("long enqueued: %+v, %v", found, err)
	}
	earliest := found.Earliest
	claims, earliestClaim, err := d.Store.AbandonedClaims(t.Context(), time.Minute, 10, time.Time{})
	if err != nil || len(claims) != 2 {
		t.Fatalf("abandoned: %v, %v", claims, err)
	}
	for what, since := range map[string]time.Time{"enqueued": earliest, "claimed": earliestClaim} {
		if left := time.Until(since); left < 23*time.Hour+30*time.Minute || left > 24*time.Hour {
			t.Errorf("the earliest of the %s is due in %s", what, left)
		}
	}
	db := storetest.Connect(t, d, store.Options{})
	for statement, parameters := range map[string][]any{
		"dispatch.longEnqueuedSQL": {60000, uuid.Nil, 10, earliest}, "dispatch.abandonedSQL": {60000, 10, earliestClaim},
	} {
		_, bounded := storetest.BuffersOn(t, db, written(t, statement), parameters...)
		parameters[len(parameters)-1] = time.Time{}
		if _, whole := storetest.BuffersOn(t, db, written(t, statement), parameters...); bounded > 100 || whole < 500 {
			t.Errorf("%s: %d buffers are read from the deadline on, %d without it", statement, bounded, whole)
		}
	}
	// An email with a task that is not overdue counts for the earliest deadline, and is not returned.
	run(t, d, `UPDATE email_outbox SET enqueued_at = now(), lease_until = CASE status WHEN 'PROCESSING' THEN now() END WHERE status IN ('ENQUEUED', 'PROCESSING')`)
	again, err := d.Store.LongEnqueued(t.Context(), time.Hour, uuid.Nil, 10, earliest)
	if err != nil || len(again.Long) > 0 || !again.Earliest.Equal(earliest) || again.DueIn < 50*time.Minute || again.DueIn > time.Hour {
		t.Errorf("long enqueued: %+v, %v", again, err)
	}
	if claims, again, err := d.Store.AbandonedClaims(t.Context(), time.Minute, 10, earliestClaim); err != nil || len(claims) > 0 || !again.Equal(earliestClaim) {
		t.Errorf("abandoned: %v, %s, %v", claims, again, err)
	}
}
