package store_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// The loops of mailings go by the index that each statement's comment names, also when
// a file has just come in and the planner has not heard of it.
func TestMailingPlans(t *testing.T) {
	t.Parallel()
	for _, analyzed := range []bool{false, true} {
		t.Run(map[bool]string{false: "just filled", true: "analyzed"}[analyzed], func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			mailing, lane := fillMailings(t, d)
			if analyzed {
				run(t, d, `ANALYZE`)
			}
			db := direct(t, d)
			db.SetMaxOpenConns(1) // the setting below is its connection's
			if _, err := db.ExecContext(t.Context(), strings.ReplaceAll(store.AlongKeySQL, "LOCAL ", "")); err != nil {
				t.Fatal(err)
			}
			var first, last, middle uuid.UUID
			row := d.SQL.QueryRowContext(t.Context(), `SELECT first_entry, last_entry, expanded_to FROM mailings WHERE id = $1`, mailing)
			if err := row.Scan(&first, &last, &middle); err != nil {
				t.Fatal(err)
			}
			for name, tt := range map[string]struct {
				statement  string
				parameters []any
				indexes    string
			}{
				"nextEntries":  {store.NextEntriesSQL, []any{mailing, middle, last, middle, 1000}, "mailing_entries_pkey"},
				"entryRows":    {store.EntryRowsSQL, []any{first, middle, last, mailing, "", 1000, uuid.New()}, "mailing_entries_pkey"},
				"rejectRows":   {store.RejectRowsSQL, []any{mailing, 1, "", 1000}, "mailing_rejects_pkey"},
				"toCancel":     {store.ToCancelSQL, []any{mailing, middle, last, middle, 1000}, "mailing_entries_pkey"},
				"toRetry":      {store.ToRetrySQL, []any{mailing, first, last, nil, 1000}, "mailing_entries_pkey"},
				"tally":        {store.TallySQL, []any{mailing, first, last}, "mailing_entries_pkey"},
				"moveJob":      {store.MoveJobSQL, []any{mailing, nil, 2, uuid.New(), "mailing.jobs.process"}, "email_outbox_lane_claim"},
				"countLane":    {store.CountLaneSQL, []any{lane, 50_000}, "email_outbox_lane_claim"},
				"openMailings": {store.OpenMailingsSQL, nil, "mailings_open"},
				"settling":     {store.SettlingSQL, nil, "mailings_open"},
				"recover":      {store.RecoverSQL, []any{pq.Array([]string{uuid.NewString()}), 30_000, 100_000}, "mailings_open email_outbox_lane_claim"},
			} {
				plan := explain(t, db, tt.statement, tt.parameters...)
				for index := range strings.FieldsSeq(tt.indexes) {
					if !strings.Contains(plan, " using "+index+" ") || strings.Contains(plan, "Sort Key: id") {
						t.Errorf("%s does not go along %s:\n%s", name, index, plan)
					}
				}
			}
		})
	}
}

// fillMailings makes 500 old mailings and two that were uploaded at the same time, with
// 10,000 entries each, and returns one of the two and a lane.
func fillMailings(t *testing.T, d storetest.Database) (mailing uuid.UUID, lane int64) {
	t.Helper()
	company := d.Company(t)
	run(t, d, `INSERT INTO mailings (id, company_id, request_id, filename, storage_url, file_sha256, request_sha256, answer, subject, html, html_sha256,
			checker_version, fields, sender, status, total_lines, accepted, invalid, duplicates, counted_at)
		SELECT gen_random_uuid(), $1, 'r', n || '.csv', 'file:///a', sha256('a'), sha256('b'), '', 's', '<p>', sha256('c'), 1, '{}', 'a@acme.example',
			CASE WHEN n > 500 THEN 'PROCESSING' ELSE 'COMPLETED' END, 0, 0, 0, 0, now()
		FROM generate_series(1, 502) n`, company)
	run(t, d, `INSERT INTO mailing_entries (id, mailing_id, line_no, email, token)
		SELECT (lpad(to_hex(n / 4096), 8, '0') || '-' || lpad(to_hex(n % 4096), 4, '0') || '-7000-8000-' || substr(md5(n::text), 1, 12))::uuid,
			m.id, n, 'user' || n || '@example.com', 'tok'
		FROM generate_series(1, 20000) n JOIN (SELECT id, row_number() OVER (ORDER BY id) AS nth FROM mailings WHERE status = 'PROCESSING') m ON m.nth = 1 + n % 2
		ORDER BY n`)
	run(t, d, `UPDATE mailings m SET first_entry = e.ids[1], last_entry = e.ids[10000], expanded_to = e.ids[5000]
		FROM (SELECT mailing_id, array_agg(id ORDER BY id) AS ids FROM mailing_entries GROUP BY mailing_id) e WHERE e.mailing_id = m.id`)
	return ask[uuid.UUID](t, d, `SELECT id FROM mailings WHERE status = 'PROCESSING' ORDER BY id LIMIT 1`),
		ask[int64](t, d, `SELECT id FROM dispatch_lanes WHERE company_id = $1 AND queue = 'mailing.jobs.process'`, company)
}
