package storetest

import (
	"testing"

	"github.com/google/uuid"
)

// FillEmails inserts n emails of 20 companies, most of them sent, dated at the beginning of this month. It returns one of the
// companies and one of its emails. It turns autovacuum off for the tables of emails: its statistics would change plans in the
// middle of a test, and the pages that it reads would count as those of a statement.
func FillEmails(tb testing.TB, d Database, n int) (company, id uuid.UUID) {
	tb.Helper()
	d.Run(tb, `DO $$ DECLARE name regclass; BEGIN
		FOR name IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relname ~ '^email_' LOOP
			EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = false)', name);
		END LOOP;
	END $$`)
	for range 20 {
		company = d.Company(tb)
	}
	id = d.Accept(tb, company, nil)
	d.Run(tb, `
		INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, status, processed_at, next_at, expires_at,
		                          claim_token, lease_until, enqueued_at)
		SELECT (left(first_id_at(date_trunc('month', now(), 'UTC') + n * interval '1 ms')::text, 13) || '-' || substr(md5(n::text), 1, 4) || '-' ||
		        substr(md5(n::text), 5, 4) || '-' || substr(md5(n::text), 9, 12))::uuid, l.company_id, l.id, 'req-' || n,
		       jsonb_build_object('to', 'user' || n || '@example.com', 'subject', 's', 'recipient', '{}'::jsonb), 'a@acme.example', '<p>', '', 1,
		       s.status, CASE WHEN s.status = 'SENT' THEN now() END, now() - n * interval '1 ms', now() + (n % 2 - 0.5) * interval '1 day',
		       CASE WHEN s.status IN ('PROCESSING', 'OUTCOME_UNKNOWN') THEN gen_random_uuid() END, CASE s.status WHEN 'PROCESSING' THEN now() END, now()
		FROM generate_series(1, $1) n
		JOIN (SELECT *, row_number() OVER (ORDER BY id) AS nth FROM dispatch_lanes) l ON l.nth = 1 + n % 60
		CROSS JOIN LATERAL (SELECT CASE n % 100 WHEN 7 THEN 'PENDING' WHEN 8 THEN 'RETRY_SCHEDULED' WHEN 9 THEN 'ENQUEUED'
		                               WHEN 10 THEN 'OUTCOME_UNKNOWN' WHEN 11 THEN 'PROCESSING' ELSE 'SENT' END AS status) s`, n)
	d.Run(tb, `
		INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, external_id, expires_at, created_at, sent_at, event_seq, last_event)
		SELECT id, company_id, payload ->> 'to', 's', 'SENT', 1, request_id, 'CUST-' || request_id, expires_at, created_at, now(), 4, 'SENT'
		FROM email_outbox WHERE status = 'SENT'`)
	return company, id
}

// FillMailings creates 500 old mailings, and two that were uploaded at the same time, with 10,000 entries each. It
// returns one of the two and a lane.
func FillMailings(tb testing.TB, d Database) (mailing uuid.UUID, lane int64) {
	tb.Helper()
	company := d.Company(tb)
	d.Run(tb, `INSERT INTO mailings (id, company_id, request_id, filename, storage_url, file_sha256, request_sha256, answer, subject, html, html_sha256,
			checker_version, fields, sender, status, total_lines, accepted, invalid, duplicates, counted_at)
		SELECT gen_random_uuid(), $1, 'r', n || '.csv', 'file:///a', sha256('a'), sha256('b'), '', 's', '<p>', sha256('c'), 1, '{}', 'a@acme.example',
			CASE WHEN n > 500 THEN 'PROCESSING' ELSE 'COMPLETED' END, 0, 0, 0, 0, now()
		FROM generate_series(1, 502) n`, company)
	d.Run(tb, `INSERT INTO mailing_entries (id, mailing_id, line_no, email, token)
		SELECT (lpad(to_hex(n / 4096), 8, '0') || '-' || lpad(to_hex(n % 4096), 4, '0') || '-7000-8000-' || substr(md5(n::text), 1, 12))::uuid,
			m.id, n, 'user' || n || '@example.com', 'tok'
		FROM generate_series(1, 20000) n JOIN (SELECT id, row_number() OVER (ORDER BY id) AS nth FROM mailings WHERE status = 'PROCESSING') m ON m.nth = 1 + n % 2
		ORDER BY n`)
	d.Run(tb, `UPDATE mailings m SET first_entry = e.ids[1], last_entry = e.ids[10000], expanded_to = e.ids[5000]
		FROM (SELECT mailing_id, array_agg(id ORDER BY id) AS ids FROM mailing_entries GROUP BY mailing_id) e WHERE e.mailing_id = m.id`)
	return Ask[uuid.UUID](tb, d, `SELECT id FROM mailings WHERE status = 'PROCESSING' ORDER BY id LIMIT 1`),
		Ask[int64](tb, d, `SELECT id FROM dispatch_lanes WHERE company_id = $1 AND queue = 'mailing.jobs.process'`, company)
}

// OfMailing turns an accepted email into one of a mailing in SENDING, as the expander leaves it, and returns the mailing's id.
func OfMailing(tb testing.TB, d Database, company, id uuid.UUID) uuid.UUID {
	tb.Helper()
	mailing := uuid.Must(uuid.NewV7())
	d.Run(tb, `INSERT INTO mailings (id, company_id, request_id, filename, storage_url, file_sha256, request_sha256, answer, subject, html, html_sha256,
			checker_version, fields, sender, status, first_entry, last_entry, expanded_to, expanded_at, total_lines, processed_lines, accepted, invalid, duplicates)
		VALUES ($1, $2, 'r', 'a.csv', 'file:///a', sha256('a'), sha256('b'), '', 's', '<p>', sha256('c'), 1, '{cidade}', 'a@acme.example', 'SENDING', $3, $3, $3, now(), 1, 1, 1, 0, 0)`,
		mailing, company, id)
	d.Run(tb, `INSERT INTO dispatch_lanes (company_id, queue, mailing_id) VALUES ($1, 'email:send:low', $2)`, company, mailing)
	d.Run(tb, `INSERT INTO mailing_entries (id, mailing_id, line_no, email, token, status, fields) VALUES ($1, $2, 2, 'ana@example.com', 'tok', 'QUEUED', '{Recife}')`, id, mailing)
	d.Run(tb, `UPDATE email_outbox SET html = NULL, html_sha256 = NULL, checker_version = NULL, payload = payload || jsonb_build_object('htmlRef', 'mailing:' || $2::text),
		expires_at = now() + interval '10 years', lane_id = (SELECT id FROM dispatch_lanes WHERE mailing_id = $2::uuid) WHERE id = $1`, id, mailing.String())
	return mailing
}
