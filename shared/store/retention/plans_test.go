package retention_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/tenant"
)

// A step of a scan reads the next rows by the index that its comment names, and finds the selected rows by key, however large the
// tables are, and also without statistics. So the cost of a scan is linear in the number of rows.
func TestRetentionPlans(t *testing.T) {
	t.Parallel()
	for _, analyzed := range []bool{false, true} {
		t.Run(map[bool]string{false: "just filled", true: "analyzed"}[analyzed], func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company, _ := storetest.FillEmails(t, d, 20000)
			storetest.FillMailings(t, d)
			d.Run(t, `INSERT INTO recipients (id, company_id, email, cpf_cnpj_hash, updated_at)
				SELECT gen_random_uuid(), $1, 'user' || n || '@example.com', repeat('a', 64), now() - n * interval '1 minute' FROM generate_series(1, 50000) n`, company)
			d.Run(t, `UPDATE recipients SET deleted_at = now() - interval '1 day' WHERE email LIKE 'user%0@example.com'`)
			d.Run(t, `INSERT INTO recipient_intakes (recipient_id, outbox_id, company_id, email) SELECT id, gen_random_uuid(), company_id, email FROM recipients WHERE email LIKE 'user%00@example.com'`)
			d.Run(t, `INSERT INTO outbox_aggregates (company_id, aggregate_type, aggregate_id, event_type, outbox_id) SELECT company_id, 'order', id::text, 'PAID', id FROM email_outbox`)
			d.Run(t, `INSERT INTO email_events (email_log_id, seq, previous, type, created_at)
				SELECT l.outbox_id, e.* FROM email_logs l, (VALUES (1, NULL, 'RECEIVED', now()), (2, 'RECEIVED', 'VALIDATED', now()), (3, 'VALIDATED', 'SENT_ATTEMPT', now())) e`)
			d.Run(t, `INSERT INTO mailing_rejects (mailing_id, line_no, code) SELECT m.id, n, 'DUPLICATE' FROM (SELECT id FROM mailings LIMIT 5) m, generate_series(1, 5000) n`)
			d.Run(t, `INSERT INTO dead_letters (id, target, reason, payload, created_at) SELECT gen_random_uuid(), 'email:send', 'EXPIRED', jsonb_build_object('subject', repeat(md5(n::text), 30)), now() - n * interval '1 minute' FROM generate_series(1, 20000) n`)
			week, years := 7, 1000
			if _, err := d.Store.SetRetention(t.Context(), storetest.Because("their contract"), tenant.Retention{CompanyID: company, Hashes: &week, Logs: &years}); err != nil {
				t.Fatal(err)
			}
			if analyzed {
				d.Run(t, `ANALYZE`)
			}
			db := storetest.Connect(t, d, store.Options{})
			if _, err := db.ExecContext(t.Context(), strings.ReplaceAll(retention.AlongKeySQL, "LOCAL ", "")); err != nil {
				t.Fatal(err)
			}
			steps := []any{uuid.Nil, time.Hour.Milliseconds(), 1000}
			own := append(slices.Clone(steps), company)
			ended := storetest.Ask[uuid.UUID](t, d, `SELECT mailing_id FROM mailing_rejects LIMIT 1`)
			for name, tt := range map[string]struct {
				statement  string
				parameters []any
				indexes    []string
			}{
				"outbox":          {retention.PurgeOutboxSQL, steps, []string{"email_outbox_pkey", "recipient_intakes_pkey", "mailing_entries_pkey"}},
				"bodies":          {retention.EraseBodiesSQL, steps, []string{"email_outbox_pkey", "mailing_entries_pkey"}},
				"company bodies":  {retention.EraseCompanyBodiesSQL, own, []string{"email_outbox_emails", "email_outbox_pkey", "mailing_entries_pkey"}},
				"logs":            {retention.PurgeLogsSQL, steps, []string{thisMonth("email_logs", "pkey"), thisMonth("email_events", "pkey"), "email_outbox_pkey"}},
				"company logs":    {retention.PurgeCompanyLogsSQL, own, []string{thisMonth("email_logs", "company_id_outbox_id_idx"), thisMonth("email_events", "pkey"), "email_outbox_pkey"}},
				"events":          {retention.PurgeEventsSQL, steps, []string{thisMonth("email_events", "pkey"), thisMonth("email_logs", "pkey"), "email_outbox_pkey"}},
				"aggregates":      {retention.PurgeAggregatesSQL, steps, []string{"outbox_aggregates_outbox", "email_outbox_pkey", thisMonth("email_logs", "pkey")}},
				"recipientHashes": {retention.EraseRecipientHashesSQL, steps, []string{"recipients_pkey"}},
				"entryHashes":     {retention.EraseEntryHashesSQL, steps, []string{"mailing_entries_pkey", "mailings_pkey"}},
				"entryValues":     {retention.EraseEntryValuesSQL, steps, []string{"mailing_entries_pkey", "mailings_pkey", "email_outbox_pkey"}},
				"outboxHashes":    {retention.EraseOutboxHashesSQL, steps, []string{"email_outbox_pkey", "recipient_intakes_pkey", "dead_letters_open", "mailing_entries_pkey"}},
				"entries":         {retention.DeleteEntriesSQL, []any{ended, uuid.Nil, uuid.Max, 1000}, []string{"mailing_entries_pkey"}},
				"rejects":         {retention.DeleteRejectsSQL, []any{ended, 1000}, []string{"mailing_rejects_pkey"}},
				"recipients":      {retention.CleanRecipientsSQL, []any{time.Hour.Milliseconds(), 1000}, []string{"recipients_deleted", "recipient_intakes_pkey", "recipients_pkey"}},
			} {
				over := db
				if name == "recipients" { // no scan: it finds what it deletes anew, with the planner's free choice
					over = d.SQL
				}
				parameters := [][]any{tt.parameters}
				if len(tt.parameters) == 3 && strings.Contains(tt.statement, "company_retention) *") { // where only companies have an age
					parameters = append(parameters, []any{uuid.Nil, nil, 1000})
				}
				for _, p := range parameters {
					storetest.CheckStep(t, name, storetest.Explain(t, over, tt.statement, p...), tt.indexes)
				}
			}
		})
	}
}

// Mailings are never deleted: the next one whose entries have expired is found without reading those that have none left.
func TestRetentionPlans_KeptEntries(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	storetest.FillMailings(t, d)
	d.Run(t, `INSERT INTO mailings (id, company_id, request_id, filename, storage_url, file_sha256, request_sha256, answer, subject, html, html_sha256,
			checker_version, fields, sender, status, total_lines, accepted, invalid, duplicates, counted_at, completed_at, entries_deleted_at)
		SELECT gen_random_uuid(), m.company_id, 'r', 'old ' || n || '.csv', 'file:///a', sha256('a'), sha256('b'), '', 's', '<p>', sha256('c'), 1, '{}', 'a@acme.example',
			'COMPLETED', 0, 0, 0, 0, now(), now() - n * interval '1 minute', now()
		FROM (SELECT company_id FROM mailings LIMIT 1) m, generate_series(1, 10000) n`)
	for _, full := range []string{"", `ANALYZE`} {
		if full != "" {
			d.Run(t, full)
		}
		plan := storetest.Explain(t, d.SQL, retention.KeptEntriesSQL, time.Hour.Milliseconds())
		if !strings.Contains(plan, " mailings_kept ") || strings.Contains(plan, "Seq Scan on mailings") {
			t.Errorf("%q: not along mailings_kept:\n%s", full, plan)
		}
		after := time.Now().Add(-30 * 24 * time.Hour)
		if plan := storetest.Explain(t, d.SQL, retention.DueFilesSQL, time.Hour.Milliseconds(), 100, after, uuid.Nil); !strings.Contains(plan, " mailings_files ") || strings.Contains(plan, "Seq Scan on mailings") {
			t.Errorf("%q: not along mailings_files:\n%s", full, plan)
		}
		if plan := storetest.Explain(t, d.SQL, retention.EraseTemplatesSQL, time.Hour.Milliseconds(), 20); !strings.Contains(plan, " mailings_templates_kept ") || strings.Contains(plan, "Seq Scan on mailings") {
			t.Errorf("%q: not along mailings_templates_kept:\n%s", full, plan)
		}
	}
}

// thisMonth names the index of the log's partition that grow has filled.
func thisMonth(log, index string) string {
	return log + time.Now().UTC().Format("_2006_01_") + index
}
