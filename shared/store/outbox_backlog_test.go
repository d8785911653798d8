package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/email"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

func TestCountBacklog(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for range 5 {
		d.Accept(t, company, nil)
	}
	d.Mailing(t, company, 1, nil) // its job is a row too
	for range 2 {
		id := d.Accept(t, company, nil)
		run(t, d, `UPDATE email_outbox SET status = 'OUTCOME_UNKNOWN', claim_token = gen_random_uuid() WHERE id = $1`, id)
	}
	run(t, d, `INSERT INTO dead_letters (id, target, reason, payload, resolved_at)
		SELECT gen_random_uuid(), 'email:send', 'X', '{}', CASE WHEN n > 3 THEN now() END FROM generate_series(1, 9) n`)
	for limit, want := range map[int]dispatch.Backlog{
		100: {Pending: 6, Unknown: 2, DeadLetters: 3},
		2:   {Pending: 2, Unknown: 2, DeadLetters: 2},
	} {
		got, err := d.Store.CountBacklog(t.Context(), limit)
		if err != nil || got != want {
			t.Errorf("up to %d: %+v, %v; want %+v", limit, got, err, want)
		}
	}
}

func TestOldestDue(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	due := func(change func(*outbox.NewEmail), ago string) {
		t.Helper()
		id := d.Accept(t, d.Company(t), change)
		run(t, d, `UPDATE email_outbox SET next_at = now() - $2::interval WHERE id = $1`, id, ago)
	}
	retry := func(id any, ago string) {
		t.Helper()
		run(t, d, `UPDATE email_outbox SET status = 'RETRY_SCHEDULED', enqueued_at = now(), next_at = now() - $2::interval WHERE id = $1`, id, ago)
	}
	high := func(e *outbox.NewEmail) { e.Priority = 1 }
	due(nil, "50 s")
	due(nil, "70 s")
	due(high, "-1 h") // not due yet
	retry(d.Accept(t, d.Company(t), high), "2 s")
	low := func(e *outbox.NewEmail) { e.Priority = 9 }
	retry(d.Accept(t, d.Company(t), low), "20 s") // its task was lost
	held := d.Company(t)
	run(t, d, `UPDATE email_outbox SET next_at = now() - interval '1 day' WHERE id = $1`, d.Accept(t, held, nil))
	run(t, d, `UPDATE dispatch_lanes SET held_at = now(), held_reason = 'a test' WHERE company_id = $1`, held)
	expired := d.Accept(t, d.Company(t), high)
	run(t, d, `UPDATE email_outbox SET next_at = now() - interval '1 day', expires_at = now() WHERE id = $1`, expired)
	mailing := d.Company(t)
	run(t, d, `UPDATE email_outbox SET next_at = now() - interval '90 s' WHERE id = $1`, d.Accept(t, mailing, low))
	run(t, d, `UPDATE dispatch_lanes SET mailing_id = gen_random_uuid() WHERE company_id = $1 AND queue = $2`, mailing, email.QueueLow)

	ages, err := d.Store.OldestDue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[dispatch.LaneAge]time.Duration{}
	for _, a := range ages {
		got[dispatch.LaneAge{Queue: a.Queue, Mailing: a.Mailing}] = a.Age().Truncate(10 * time.Second)
	}
	want := map[dispatch.LaneAge]time.Duration{
		{Queue: email.QueueHigh}:               24 * time.Hour,
		{Queue: email.QueueNormal}:             70 * time.Second,
		{Queue: email.QueueLow}:                20 * time.Second,
		{Queue: email.QueueLow, Mailing: true}: 90 * time.Second,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The count has no limit, and emails with one deadline are counted once.
func TestCountAll(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	d.Mailing(t, company, 1, nil) // its job is a row too
	id := d.Accept(t, company, nil)
	const copies = 110_000 // more than a page of 100,000, and so many have one deadline
	run(t, d, `INSERT INTO email_outbox (id, company_id, request_id, lane_id, target, payload, html, html_sha256, checker_version, sender, status, priority, next_at, expires_at)
		SELECT gen_random_uuid(), company_id, request_id, lane_id, target, '{}', '', html_sha256, checker_version, sender, status, priority, next_at,
		       expires_at + (n / 105000) * interval '1 s'
		FROM email_outbox, generate_series(1, $2) n WHERE id = $1`, id, copies)
	run(t, d, `UPDATE email_outbox SET status = 'OUTCOME_UNKNOWN', claim_token = gen_random_uuid() WHERE id = $1`, id)
	run(t, d, `INSERT INTO dead_letters (id, target, reason, payload) VALUES (gen_random_uuid(), 'email:send', 'X', '{}')`)
	got, err := d.Store.CountAll(t.Context())
	if want := (dispatch.Backlog{Pending: copies + 1, Unknown: 1, DeadLetters: 1}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// Dead letters of mailings and recipients stay for thirty days. A day before open ones of any
// kind go they are counted.
func TestDeadLetterAges(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	for _, target := range []string{"email:send", "email:send:high", "mailing.process", "recipients.upsert"} {
		for _, age := range []string{"5.9", "6.1", "7.1", "28.9", "29.1", "30.1"} {
			run(t, d, `INSERT INTO dead_letters (id, target, reason, payload, created_at) VALUES (gen_random_uuid(), $1, $2::text, '{}', now() - $2::text::float8 * interval '1 day')`, target, age)
		}
	}
	left := func() string {
		return ask[string](t, d, `SELECT string_agg(target || ' ' || ages, '; ' ORDER BY target) FROM (
			SELECT target, string_agg(reason, ' ' ORDER BY created_at DESC) AS ages FROM dead_letters GROUP BY target) t`)
	}
	emails, err := d.Store.CleanEmailLetters(t.Context(), 1000)
	if err != nil || emails != 8 {
		t.Errorf("%d of emails, %v; want 8", emails, err)
	}
	bulk, err := d.Store.CleanBulkLetters(t.Context(), 1000)
	if err != nil || bulk != 2 {
		t.Errorf("%d of mailings and recipients, %v; want 2", bulk, err)
	}
	const want = "email:send 5.9 6.1; email:send:high 5.9 6.1; mailing.process 5.9 6.1 7.1 28.9 29.1; recipients.upsert 5.9 6.1 7.1 28.9 29.1"
	if got := left(); got != want {
		t.Errorf("left: %s, want %s", got, want)
	}
	soon, err := d.Store.CountExpiring(t.Context(), 24*time.Hour)
	if err != nil || soon != (dispatch.ExpiringLetters{Emails: 2, Bulk: 2}) {
		t.Errorf("soon: %+v, %v", soon, err)
	}
	run(t, d, `UPDATE dead_letters SET resolved_at = now(), resolution = 'discarded', resolved_by = 'operator:x' WHERE target = 'mailing.process'`)
	if soon, err = d.Store.CountExpiring(t.Context(), 24*time.Hour); err != nil || soon.Bulk != 1 {
		t.Errorf("open ones soon: %+v, %v", soon, err)
	}
}
