package store_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// A step of a walk looks at the next rows along the index that its comment names, and
// finds what it picked of them by key, however large the tables are, and also when the
// planner has not heard of their size. So a walk costs as much as there are rows.
func TestRetentionPlans(t *testing.T) {
	t.Parallel()
	for _, analyzed := range []bool{false, true} {
		t.Run(map[bool]string{false: "just filled", true: "analyzed"}[analyzed], func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company, _ := grow(t, d, 20000)
			fillMailings(t, d)
			run(t, d, `INSERT INTO recipients (id, company_id, email, cpf_cnpj_hash, updated_at)
				SELECT gen_random_uuid(), $1, 'user' || n || '@example.com', repeat('a', 64), now() - n * interval '1 minute' FROM generate_series(1, 50000) n`, company)
			run(t, d, `UPDATE recipients SET deleted_at = now() - interval '1 day' WHERE email LIKE 'user%0@example.com'`)
			run(t, d, `INSERT INTO recipient_intakes (recipient_id, outbox_id, company_id, email) SELECT id, gen_random_uuid(), company_id, email FROM recipients WHERE email LIKE 'user%00@example.com'`)
			run(t, d, `INSERT INTO outbox_aggregates (company_id, aggregate_type, aggregate_id, event_type, outbox_id) SELECT company_id, 'order', id::text, 'PAID', id FROM email_outbox`)
			run(t, d, `INSERT INTO email_events (email_log_id, seq, previous, type, created_at)
				SELECT l.outbox_id, e.* FROM email_logs l, (VALUES (1, NULL, 'RECEIVED', now()), (2, 'RECEIVED', 'VALIDATED', now()), (3, 'VALIDATED', 'SENT_ATTEMPT', now())) e`)
			run(t, d, `INSERT INTO mailing_rejects (mailing_id, line_no, code) SELECT m.id, n, 'DUPLICATE' FROM (SELECT id FROM mailings LIMIT 5) m, generate_series(1, 5000) n`)
			run(t, d, `INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
				SELECT $1, 'POST /v1/email/send', n, sha256('a'), 202, '', gen_random_uuid(), now() + (n - 5000) * interval '1 minute' FROM generate_series(1, 20000) n`, company)
			run(t, d, `INSERT INTO ses_events (sns_message_id, kind, received_at) SELECT md5(n::text), 'Delivery', now() - n * interval '1 minute' FROM generate_series(1, 20000) n`)
			run(t, d, `INSERT INTO dead_letters (id, target, reason, payload, created_at) SELECT gen_random_uuid(), 'email:send', 'EXPIRED', jsonb_build_object('subject', repeat(md5(n::text), 30)), now() - n * interval '1 minute' FROM generate_series(1, 20000) n`)
			week, years := 7, 1000
			if err := d.Store.SetRetention(t.Context(), because("their contract"), store.Retention{CompanyID: company, Hashes: &week, Logs: &years}); err != nil {
				t.Fatal(err)
			}
			if analyzed {
				run(t, d, `ANALYZE`)
			}
			db := direct(t, d)
			db.SetMaxOpenConns(1) // the setting below is its connection's
			if _, err := db.ExecContext(t.Context(), strings.ReplaceAll(store.AlongKeySQL, "LOCAL ", "")); err != nil {
				t.Fatal(err)
			}
			steps := []any{uuid.Nil, time.Hour.Milliseconds(), 1000}
			own := append(slices.Clone(steps), company)
			ended := ask[uuid.UUID](t, d, `SELECT mailing_id FROM mailing_rejects LIMIT 1`)
			for name, tt := range map[string]struct {
				statement  string
				parameters []any
				indexes    []string
			}{
				"outbox":          {store.PurgeOutboxSQL, steps, []string{"email_outbox_pkey", "recipient_intakes_pkey", "mailing_entries_pkey"}},
				"bodies":          {store.EraseBodiesSQL, steps, []string{"email_outbox_pkey", "mailing_entries_pkey"}},
				"company bodies":  {store.EraseCompanyBodiesSQL, own, []string{"email_outbox_company", "email_outbox_pkey", "mailing_entries_pkey"}},
				"logs":            {store.PurgeLogsSQL, steps, []string{thisMonth("email_logs", "pkey"), thisMonth("email_events", "pkey"), "email_outbox_pkey"}},
				"company logs":    {store.PurgeCompanyLogsSQL, own, []string{thisMonth("email_logs", "company_id_outbox_id_idx"), thisMonth("email_events", "pkey"), "email_outbox_pkey"}},
				"events":          {store.PurgeEventsSQL, steps, []string{thisMonth("email_events", "pkey"), thisMonth("email_logs", "pkey"), "email_outbox_pkey"}},
				"aggregates":      {store.PurgeAggregatesSQL, steps, []string{"outbox_aggregates_outbox", "email_outbox_pkey", thisMonth("email_logs", "pkey")}},
				"recipientHashes": {store.EraseRecipientHashesSQL, steps, []string{"recipients_pkey"}},
				"entryHashes":     {store.EraseEntryHashesSQL, steps, []string{"mailing_entries_pkey", "mailings_pkey"}},
				"entryValues":     {store.EraseEntryValuesSQL, steps, []string{"mailing_entries_pkey", "mailings_pkey", "email_outbox_pkey"}},
				"outboxHashes":    {store.EraseOutboxHashesSQL, steps, []string{"email_outbox_pkey", "recipient_intakes_pkey", "dead_letters_open", "mailing_entries_pkey"}},
				"entries":         {store.DeleteEntriesSQL, []any{ended, uuid.Nil, uuid.Max, 1000}, []string{"mailing_entries_pkey"}},
				"rejects":         {store.DeleteRejectsSQL, []any{ended, 1000}, []string{"mailing_rejects_pkey"}},
				"recipients":      {store.CleanRecipientsSQL, []any{time.Hour.Milliseconds(), 1000}, []string{"recipients_deleted", "recipient_intakes_pkey", "recipients_pkey"}},
				"keys":            {store.CleanKeysSQL, []any{1000}, []string{"idempotency_keys_expiry"}},
				"feedback":        {store.CleanFeedbackSQL, []any{time.Hour.Milliseconds(), 1000}, []string{"ses_events_age", "ses_events_pkey"}},
				"dead letters":    {store.CleanEmailLettersSQL, []any{time.Hour.Milliseconds(), 1000}, []string{"dead_letters_pkey"}},
				"bulk letters":    {store.CleanBulkLettersSQL, []any{time.Hour.Milliseconds(), 1000}, []string{"dead_letters_age", "dead_letters_pkey"}},
			} {
				over := db
				if slices.Contains([]string{"recipients", "keys", "feedback", "dead letters", "bulk letters"}, name) { // no walks: what they delete they find anew, with the planner's free choice
					over = d.SQL
				}
				parameters := [][]any{tt.parameters}
				if len(tt.parameters) == 3 && strings.Contains(tt.statement, "company_retention) *") { // where only companies have an age
					parameters = append(parameters, []any{uuid.Nil, nil, 1000})
				}
				for _, p := range parameters {
					checkStep(t, name, explain(t, over, tt.statement, p...), tt.indexes)
				}
			}
		})
	}
}

// Mailings stay for good, with their numbers: the next one whose entries are past their
// time is found without reading those that have none left.
func TestRetentionPlans_KeptEntries(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	fillMailings(t, d)
	run(t, d, `INSERT INTO mailings (id, company_id, request_id, filename, storage_url, file_sha256, request_sha256, answer, subject, html, html_sha256,
			checker_version, fields, sender, status, total_lines, accepted, invalid, duplicates, counted_at, completed_at, entries_deleted_at)
		SELECT gen_random_uuid(), m.company_id, 'r', 'old ' || n || '.csv', 'file:///a', sha256('a'), sha256('b'), '', 's', '<p>', sha256('c'), 1, '{}', 'a@acme.example',
			'COMPLETED', 0, 0, 0, 0, now(), now() - n * interval '1 minute', now()
		FROM (SELECT company_id FROM mailings LIMIT 1) m, generate_series(1, 10000) n`)
	for _, full := range []string{"", `ANALYZE`} {
		if full != "" {
			run(t, d, full)
		}
		plan := explain(t, d.SQL, store.KeptEntriesSQL, time.Hour.Milliseconds())
		if !strings.Contains(plan, " mailings_kept ") || strings.Contains(plan, "Seq Scan on mailings") {
			t.Errorf("%q: not along mailings_kept:\n%s", full, plan)
		}
		if plan := explain(t, d.SQL, store.EraseTemplatesSQL, time.Hour.Milliseconds(), 20); !strings.Contains(plan, " mailings_templates_kept ") || strings.Contains(plan, "Seq Scan on mailings") {
			t.Errorf("%q: not along mailings_templates_kept:\n%s", full, plan)
		}
	}
}

// thisMonth names the index of the log's partition that grow has filled.
func thisMonth(log, index string) string {
	return log + time.Now().UTC().Format("_2006_01_") + index
}

// checkStep holds the plan of a walk's step to its indexes.
func checkStep(t *testing.T, name, plan string, indexes []string) {
	t.Helper()
	for _, index := range indexes {
		if !regexp.MustCompile(` (using|Index Scan on) ` + index + ` `).MatchString(plan) {
			t.Errorf("%s does not use %s:\n%s", name, index, plan)
		}
	}
	// The next rows in the index's order, not all of them sorted. What was picked may be.
	for _, part := range strings.SplitAfter(plan, "CTE ") {
		sorts := regexp.MustCompile(`->  Sort .*\n +Sort Key: (r\.deleted_at|mailing_rejects\.line_no|(\w+\.)?(expires_at|received_at|created_at))`)
		if strings.HasPrefix(part, "seen\n") || strings.HasPrefix(part, "next\n") {
			sorts = regexp.MustCompile(`->  Sort .*\n +Sort Key: .*`)
		}
		if found := sorts.FindString(part); found != "" {
			t.Errorf("%s: %s:\n%s", name, found, plan)
		}
	}
	if reads := regexp.MustCompile(`Seq Scan on (email_outbox|mailing_entries|mailing_rejects|mailings|recipients|recipient_intakes|outbox_aggregates|idempotency_keys|ses_events|dead_letters|email_\w+` +
		time.Now().UTC().Format("_2006_01") + `) `).FindString(plan); reads != "" {
		t.Errorf("%s: %s:\n%s", name, reads, plan)
	}
}

// Dead letters of recipients stay longer: those of emails are found without reading them.
func TestRetentionPlans_DeadLettersOfEmails(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	run(t, d, `INSERT INTO dead_letters (id, target, reason, payload, created_at)
		SELECT gen_random_uuid(), CASE WHEN n % 100 = 0 THEN 'email:send' ELSE 'recipients.upsert' END, 'X', '{}', now() - n * interval '1 min' FROM generate_series(1, 40000) n`)
	run(t, d, `ANALYZE dead_letters`)
	if plan := explain(t, d.SQL, store.CleanEmailLettersSQL, time.Hour.Milliseconds(), 1000); !strings.Contains(plan, " dead_letters_of_emails ") {
		t.Error(plan)
	}
}
