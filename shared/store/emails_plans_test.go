package store_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/emails"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// searched is how many rows the test of the searches fills the tables with. With
// SEARCH_MILLION=1 it is the size that the budget of 50 ms is for, and the time is measured.
func searched() (sent, scheduled int, measured bool) {
	if os.Getenv("SEARCH_MILLION") != "" {
		return 1_000_000, 10_000, true
	}
	return 20_000, 200, false
}

// Scheduled emails that are older than all others of their company are found by every
// search, and no search reads more rows than one step of a list may.
func TestPlans_SearchScheduled(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	sent, scheduled, measured := searched()
	ids := acceptScheduled(t, d, company, scheduled)
	fillSent(t, d, company, sent)
	run(t, d, `ANALYZE`)
	one := ids[len(ids)/2]
	rows := d.Store
	for name, tt := range map[string]struct {
		filter emails.Filter
		index  string
	}{
		"recipient":   {emails.Filter{Recipient: fmt.Sprintf("S%d@Example.com", len(ids)/2)}, `email_logs_\w+_company_id_lower_outbox_id_idx`},
		"external id": {emails.Filter{ExternalID: fmt.Sprint("S-", len(ids)/2)}, `email_logs_\w+_company_id_external_id_outbox_id_idx`},
		"request":     {emails.Filter{RequestID: fmt.Sprint("later-", len(ids)/2)}, `email_logs_\w+_company_id_request_id_outbox_id_idx`},
		"aggregate":   {emails.Filter{AboutType: "interview", AboutID: fmt.Sprint(len(ids) / 2)}, `outbox_aggregates_pkey`},
		"tag":         {emails.Filter{Tag: fmt.Sprint("batch-", len(ids)/2)}, `email_logs_\w+_tag1`},
		"tag, waits":  {emails.Filter{Tag: fmt.Sprint("batch-", len(ids)/2), Status: email.Pending}, `email_outbox_lane_claim`},
		"status":      {emails.Filter{Status: email.Pending, Until: ids[len(ids)-1]}, `email_outbox_(emails|pkey)`},
	} {
		tt.filter.Limit = 50
		plan, read := explainPage(t, d, company, tt.filter)
		if !regexp.MustCompile(` (?:using|Bitmap Index Scan on) ` + tt.index + ` `).MatchString(plan) {
			t.Errorf("by %s: %s is not used:\n%s", name, tt.index, plan)
		}
		if read > 4*writtenNumber(t, "emails.ListScan") {
			t.Errorf("by %s: %d rows read:\n%s", name, read, plan)
		}
		var took []time.Duration
		var page emails.Page
		var err error
		for range 9 {
			start := time.Now()
			if page, err = rows.ListEmails(t.Context(), company, tt.filter); err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		t.Logf("by %s: median %v, slowest %v, %d rows read", name, took[len(took)/2], took[len(took)-1], read)
		if measured && took[len(took)/2] > 50*time.Millisecond {
			t.Errorf("by %s: %v", name, took)
		}
		found := func(e emails.Email) bool { return e.ID == one }
		if name != "status" && !slices.ContainsFunc(page.Emails, found) {
			t.Errorf("by %s: not found", name)
		}
		if name == "status" && len(page.Emails) != tt.filter.Limit {
			t.Errorf("by status: %d emails", len(page.Emails))
		}
	}
}

// A page of a company's emails does not read its imports of recipients, however many there are.
func TestPlans_ListBehindImports(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	first := d.Accept(t, company, nil)
	run(t, d, `
		INSERT INTO email_outbox (id, company_id, lane_id, target, request_id, payload, status, processed_at, expires_at)
		SELECT (left(first_id_at(clock_timestamp() + n * interval '1 ms')::text, 13) || '-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, $1,
		       (SELECT id FROM dispatch_lanes WHERE company_id = $1 AND queue = $2), 'recipients.upsert', 'r', '{}', 'PUBLISHED', now(), 'infinity'
		FROM generate_series(1, 30000) n`, company, email.QueueRecipients)
	db := storetest.Connect(t, d, store.Options{})
	for _, full := range []string{"", `ANALYZE email_outbox`} {
		if full != "" {
			run(t, d, full)
		}
		for name, parameters := range map[string][]any{
			"emails.listIDsSQL": {company, uuid.Max, uuid.Nil, 50},
			"emails.stepIDsSQL": {company, uuid.Max, uuid.Nil, "", writtenNumber(t, "emails.ListScan"), 50, string(email.Pending)},
		} {
			if plan, read := storetest.Buffers(t, db, written(t, name), parameters...); read > 100 {
				t.Errorf("%q: %s reads %d buffers:\n%s", full, name, read, plan)
			}
		}
	}
	if page, err := d.Store.ListEmails(t.Context(), company, emails.Filter{Limit: 50}); err != nil || len(page.Emails) != 1 || page.Emails[0].ID != first {
		t.Errorf("listed %v, %v", page.Emails, err)
	}
}

// acceptScheduled accepts so many emails of another day, as the api does.
func acceptScheduled(t *testing.T, d storetest.Database, company uuid.UUID, n int) []uuid.UUID {
	t.Helper()
	all := make([]outbox.NewEmail, n)
	ids := make([]uuid.UUID, n)
	for i := range all {
		all[i] = storetest.NewEmail(company, func(e *outbox.NewEmail) {
			e.Job.To, e.Job.Recipient.Email, e.Job.Recipient.ExternalID = fmt.Sprintf("s%d@example.com", i), fmt.Sprintf("s%d@example.com", i), fmt.Sprint("S-", i)
			e.RequestID, e.SendAt = fmt.Sprint("later-", i), time.Now().Add(48*time.Hour)
			e.Job.Tags = []string{fmt.Sprint("batch-", i)}
			if i == n/2 {
				e.Aggregate = &outbox.Aggregate{Type: "interview", ID: fmt.Sprint(i), EventType: "REMINDER"}
			}
		})
		ids[i] = all[i].ID
	}
	accepter := d.Store.NewAccepter()
	var group sync.WaitGroup
	for part := range slices.Chunk(all, max(n/16, 1)) {
		group.Go(func() {
			for _, e := range part {
				if err := accepter.Accept(t.Context(), e); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	return ids
}

// fillSent adds emails of the company that are newer and sent, but for 6,000 that wait for the
// dispatcher.
func fillSent(t *testing.T, d storetest.Database, company uuid.UUID, n int) {
	t.Helper()
	run(t, d, `
		INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, status, processed_at, expires_at, created_at)
		SELECT (left(first_id_at(clock_timestamp() + n * interval '50 us')::text, 13) || '-7' || substr(md5(n::text), 1, 3) || '-8' ||
		        substr(md5(n::text), 4, 3) || '-' || substr(md5(n::text), 9, 12))::uuid, $2, l.id, 'req-' || n,
		       jsonb_build_object('to', 'user' || n || '@example.com', 'subject', 's', 'tags', '["invoice"]'::jsonb, 'recipient', '{}'::jsonb),
		       'a@acme.example', '<p>', '', 1, s.status, CASE WHEN s.status = 'SENT' THEN now() END, now() + interval '1 day', now()
		FROM generate_series(1, $1) n
		JOIN dispatch_lanes l ON l.company_id = $2 AND l.queue = 'email:send' AND l.mailing_id IS NULL
		CROSS JOIN LATERAL (SELECT CASE WHEN n > $1 - 6000 THEN 'PENDING' ELSE 'SENT' END AS status) s`, n, company)
	run(t, d, `
		INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, external_id, tags, expires_at, created_at, sent_at, event_seq, last_event)
		SELECT id, company_id, payload ->> 'to', 's', 'SENT', 1, request_id, 'CUST-' || request_id, '{invoice}', expires_at, created_at, now(), 4, 'SENT'
		FROM email_outbox WHERE status = 'SENT'`)
	run(t, d, `INSERT INTO outbox_aggregates (company_id, aggregate_type, aggregate_id, event_type, outbox_id)
		SELECT company_id, 'order', id::text, 'PAID', id FROM email_outbox WHERE status = 'SENT'`)
}

// explainPage runs the statements of a page and returns their plans, and how many rows
// they read from tables.
func explainPage(t *testing.T, d storetest.Database, company uuid.UUID, f emails.Filter) (plan string, read int) {
	t.Helper()
	db := storetest.Connect(t, d, store.Options{})
	before := uuid.Max
	if f.Until != uuid.Nil {
		before = f.Until
	}
	scan := f.Limit
	if f.AboutType != "" {
		scan = writtenNumber(t, "emails.ListScan")
	}
	statement, parameters := written(t, "emails.listIDsSQL"), []any{company, before, f.From, scan}
	switch {
	case f.AboutType != "":
		statement, parameters = written(t, "emails.aboutIDsSQL"), []any{company, before, f.From, f.AboutType, f.AboutID, f.EventType, scan}
	case f.Tag != "" && f.Status == email.Pending:
		statement, parameters = written(t, "emails.waitingIDsSQL"), []any{company, before, f.From, f.Tag, writtenNumber(t, "emails.waitingScan"), f.Limit, string(f.Status)}
	case f.Tag != "":
		statement, parameters = written(t, "emails.taggedIDsSQL"), []any{company, before, f.From, writtenNumber(t, "emails.ListScan"), writtenNumber(t, "emails.waitingScan"), f.Tag}
	case f.Status != "":
		statement, parameters = written(t, "emails.stepIDsSQL"), []any{company, before, f.From, f.Tag, writtenNumber(t, "emails.ListScan"), f.Limit, string(f.Status)}
	case f.Recipient != "" || f.ExternalID != "" || f.RequestID != "":
		statement, parameters = written(t, "emails.searchIDsSQL"), []any{company, before, f.From, scan, writtenNumber(t, "emails.ListScan"), f.Recipient, f.ExternalID, f.RequestID}
	}
	plan = storetest.Explain(t, db, "(ANALYZE, TIMING OFF) "+statement, parameters...)
	rows, err := db.QueryContext(t.Context(), "SELECT coalesce(to_jsonb(found) ->> 'id', to_jsonb(found) ->> 'outbox_id') FROM ("+statement+") found WHERE coalesce(to_jsonb(found) ->> 'reached', 'false') = 'false'", parameters...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var ids []uuid.UUID
	for rows.Next() {
		var id uuid.UUID
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	plan += storetest.Explain(t, db, "(ANALYZE, TIMING OFF) "+written(t, "emails.pageRowsSQL"), pageRowsParameters(ids, f)...)
	scanned := regexp.MustCompile(`Scan .*\(actual rows=(\d+) loops=(\d+)\)`)
	dropped := regexp.MustCompile(`Rows Removed by (?:Filter|Index Recheck): (\d+)`)
	ofTable := false
	for line := range strings.Lines(plan) {
		if strings.Contains(line, "(actual ") {
			ofTable = !regexp.MustCompile(`(Subquery|Function|CTE|Bitmap Index) Scan`).MatchString(line)
		}
		if m := scanned.FindStringSubmatch(line); m != nil && ofTable {
			read += number(t, m[1]) * number(t, m[2])
		}
		if m := dropped.FindStringSubmatch(line); m != nil && ofTable {
			read += number(t, m[1])
		}
	}
	return plan, read
}

func number(t *testing.T, digits string) int {
	t.Helper()
	n, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// pageRowsParameters are those of pageRowsSQL.
func pageRowsParameters(ids []uuid.UUID, f emails.Filter) []any {
	first, last := pg.IDRange(ids, func(id *uuid.UUID) uuid.UUID { return *id })
	return []any{
		pg.UUIDArray(ids), string(f.Status), f.Tag, max(f.Limit, 1), first, last, f.Recipient, f.ExternalID, f.RequestID,
		string(f.Delivery), pg.OptionalTime(f.UpdatedAfter),
	}
}
