package store_test

import (
	"strings"
	"testing"
	"time"

	"email-gateway/shared/store/storetest"
)

// The planner finds expired rows by an index, also without statistics.
func TestCleanPlans(t *testing.T) {
	t.Parallel()
	for _, analyzed := range []bool{false, true} {
		t.Run(map[bool]string{false: "just filled", true: "analyzed"}[analyzed], func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			run(t, d, `INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
				SELECT $1, 'POST /v1/email/send', n, sha256('a'), 202, '', gen_random_uuid(), now() + (n - 5000) * interval '1 minute' FROM generate_series(1, 20000) n`, d.Company(t))
			run(t, d, `INSERT INTO ses_events (sns_message_id, kind, received_at) SELECT md5(n::text), 'Delivery', now() - n * interval '1 minute' FROM generate_series(1, 20000) n`)
			run(t, d, `INSERT INTO dead_letters (id, target, reason, payload, created_at) SELECT gen_random_uuid(), 'email:send', 'EXPIRED', jsonb_build_object('subject', repeat(md5(n::text), 30)), now() - n * interval '1 minute' FROM generate_series(1, 20000) n`)
			if analyzed {
				run(t, d, `ANALYZE`)
			}
			hour := time.Hour.Milliseconds()
			for name, tt := range map[string]struct {
				statement  string
				parameters []any
				indexes    []string
			}{
				"keys":         {written(t, "idempotency.cleanKeysSQL"), []any{1000}, []string{"idempotency_keys_expiry"}},
				"feedback":     {written(t, "feedback.cleanFeedbackSQL"), []any{hour, 1000}, []string{"ses_events_age", "ses_events_pkey"}},
				"dead letters": {written(t, "deadletter.cleanEmailLettersSQL"), []any{hour, 1000}, []string{"dead_letters_pkey"}},
				"bulk letters": {written(t, "deadletter.cleanBulkLettersSQL"), []any{hour, 1000}, []string{"dead_letters_age", "dead_letters_pkey"}},
			} {
				storetest.CheckStep(t, name, storetest.Explain(t, d.SQL, tt.statement, tt.parameters...), tt.indexes)
			}
		})
	}
}

// Dead letters of emails are found without reading those of recipients, which stay longer.
func TestCleanPlans_DeadLettersOfEmails(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	run(t, d, `INSERT INTO dead_letters (id, target, reason, payload, created_at)
		SELECT gen_random_uuid(), CASE WHEN n % 100 = 0 THEN 'email:send' ELSE 'recipients.upsert' END, 'X', '{}', now() - n * interval '1 min' FROM generate_series(1, 40000) n`)
	run(t, d, `ANALYZE dead_letters`)
	if plan := storetest.Explain(t, d.SQL, written(t, "deadletter.cleanEmailLettersSQL"), time.Hour.Milliseconds(), 1000); !strings.Contains(plan, " dead_letters_of_emails ") {
		t.Error(plan)
	}
}
