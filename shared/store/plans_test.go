package store_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// On large tables, the planner chooses for each hot statement the index that its comment names.
func TestPlans(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, id := storetest.FillEmails(t, d, 50000)
	run(t, d, `INSERT INTO dead_letter_replays (id, action, filter, requested_by, rate, matched, status, finished_at)
		SELECT gen_random_uuid(), 'retry', '{}', 'test', 10, 1, CASE n WHEN 1 THEN 'RUNNING' ELSE 'COMPLETED' END, CASE WHEN n > 1 THEN now() END
		FROM generate_series(1, 2000) n`)
	run(t, d, `INSERT INTO email_events (email_log_id, seq, type, created_at) SELECT outbox_id, 1, 'RECEIVED', created_at FROM email_logs`)
	run(t, d, `ANALYZE`)
	theirs := ask[string](t, d, `SELECT company_id FROM email_logs GROUP BY company_id ORDER BY count(*) DESC LIMIT 1`)
	logged := ask[string](t, d, `SELECT outbox_id FROM email_logs WHERE company_id = $1 LIMIT 1`, theirs)
	search := func(recipient, externalID, requestID string) []any {
		return []any{company, uuid.Max, uuid.Nil, 50, 5000, recipient, externalID, requestID}
	}
	unreceived := []string{"email_outbox_lane_claim", "email_outbox_open"}
	lanes, since := pq.Array([]int64{1, 2, 3}), pq.Array([]string{"-infinity", "-infinity", "-infinity"})
	ids := pq.Array([]uuid.UUID{{}, {}, {}})
	notification := []any{
		pq.Array([]string{"n"}), pq.Array([]string{"Delivery"}), pq.Array([]string{""}), pq.Array([]string{logged}), pq.Array([]string{logged}),
		pq.Array([]string{theirs}), pq.Array([]string{uuid.NewString()}), pq.Array([]string{"{}"}), pq.Array([]time.Time{time.Now()}),
	}
	for name, tt := range map[string]struct {
		statement  string
		parameters []any
		indexes    []string
	}{
		"takeDue":              {written(t, "sql.TakeDue"), []any{3, id, time.Now(), lanes, since, ids, lanes}, []string{"email_outbox_lane_claim"}},
		"takeProbe":            {written(t, "dispatch.takeProbeSQL"), []any{id, id}, []string{"email_outbox_pkey"}},
		"pickProbe":            {written(t, "dispatch.pickProbeSQL"), []any{pq.Array(email.Queues()), 5000}, []string{"email_outbox_lane_claim", "email_outbox_pkey"}},
		"pickSafeProbe":        {written(t, "dispatch.pickSafeProbeSQL"), []any{pq.Array(email.Queues()), 5000}, []string{"email_outbox_lane_claim", "email_outbox_pkey"}},
		"pickEarlyProbe":       {written(t, "dispatch.pickEarlyProbeSQL"), []any{pq.Array(email.Queues()), 5000}, []string{"email_outbox_lane_claim", "email_outbox_pkey"}},
		"leaseJobs":            {written(t, "sql.LeaseJobs"), []any{3, lanes, since, ids, lanes}, []string{"email_outbox_lane_claim"}},
		"release":              {written(t, "sql.Release"), []any{time.Now(), pq.Array([]string{id.String()}), pq.Array([]int64{0}), pq.Array([]int64{0})}, []string{"email_outbox_pkey"}},
		"waitingLanes":         {written(t, "dispatch.waitingLanesSQL"), nil, []string{"email_outbox_lane_claim"}},
		"namedLanes":           {written(t, "sql.NamedLanes"), []any{3, lanes, since, ids}, []string{"email_outbox_lane_claim"}},
		"newLanes":             {written(t, "dispatch.newLanesSQL"), []any{1000, 2000, 5000}, []string{"email_outbox_pkey"}},
		"oldestDue":            {written(t, "dispatch.oldestDueSQL"), nil, []string{"email_outbox_lane_claim"}},
		"servedQueues":         {written(t, "dispatch.servedQueuesSQL"), []any{120_000}, []string{"email_outbox_open"}},
		"countBacklog":         {written(t, "dispatch.countBacklogSQL"), []any{1000}, []string{"email_outbox_lane_claim", "email_outbox_open"}},
		"overdue":              {written(t, "dispatch.overdueSQL"), []any{100}, []string{"email_outbox_open"}},
		"abandoned":            {written(t, "dispatch.abandonedSQL"), []any{5000, 500, time.Now()}, []string{"email_outbox_open"}},
		"unresolved":           {written(t, "dispatch.unresolvedSQL"), []any{time.Now(), uuid.Nil, 50, 0}, []string{"email_outbox_open"}},
		"unresolved, first":    {written(t, "dispatch.unresolvedSQL"), []any{time.Time{}, uuid.Nil, 5000, 0}, []string{"email_outbox_open"}},
		"unknownCauses":        {written(t, "dispatch.unknownCausesSQL"), []any{pq.Array([]string{logged}), logged, logged}, []string{`email_events_\w+_pkey`}},
		"longEnqueued":         {written(t, "dispatch.longEnqueuedSQL"), []any{60000, uuid.Nil, 500, time.Now()}, []string{"email_outbox_open"}},
		"stillEnqueued":        {written(t, "dispatch.stillEnqueuedSQL"), []any{"{" + uuid.NewString() + "}", 60000}, []string{"email_outbox_pkey"}},
		"readFeedback":         {written(t, "sql.ReadFeedback"), []any{1, logged, logged, pq.Array([]string{logged}), pq.Array([]string{"SENT"}), pq.Array([]string{"{}"}), pq.Array([]string{"{}"}), pq.Array([]string{""})}, []string{"email_outbox_pkey", `email_logs_\w+_pkey`, `email_events_\w+_pkey`}},
		"takeFeedback":         {written(t, "sql.TakeFeedback"), append([]any{1, logged, logged}, notification...), []string{"email_outbox_pkey", `email_logs_\w+_pkey`, `email_events_\w+_pkey`}},
		"takeFreeFeedback":     {written(t, "sql.TakeFreeFeedback"), append([]any{1, logged, logged}, notification...), []string{"email_outbox_pkey", `email_logs_\w+_pkey`, `email_events_\w+_pkey`}},
		"appendFeedback":       {written(t, "sql.AppendFeedback"), []any{1, logged, logged, pq.Array([]string{logged}), pq.Array([]string{"[]"}), pq.Array([]string{""}), pq.Array([]bool{false})}, []string{"email_outbox_pkey", `email_logs_\w+_pkey`}},
		"dueReplays":           {written(t, "deadletter.dueReplaysSQL"), nil, []string{"dead_letter_replays_open"}},
		"runningReplays":       {written(t, "deadletter.runningReplaysSQL"), []any{company, id}, []string{"dead_letter_replays_open"}},
		"saveReplay":           {written(t, "deadletter.saveReplaySQL"), []any{id, 1, 0, 0, nil, nil, false, false}, []string{"dead_letter_replays_pkey"}},
		"listIDs":              {written(t, "emails.listIDsSQL"), []any{company, uuid.Max, uuid.Nil, 50}, []string{"email_outbox_emails", `email_logs_\w+_company_id_outbox_id_idx`}},
		"searchIDs, recipient": {written(t, "emails.searchIDsSQL"), search("User77@Example.com", "", ""), append(unreceived, `email_logs_\w+_company_id_lower_outbox_id_idx`)},
		"searchIDs, external":  {written(t, "emails.searchIDsSQL"), search("", "CUST-77", ""), append(unreceived, `email_logs_\w+_company_id_external_id_outbox_id_idx`)},
		"searchIDs, request":   {written(t, "emails.searchIDsSQL"), search("", "", "req-77"), append(unreceived, `email_logs_\w+_company_id_request_id_outbox_id_idx`)},
		"taggedIDs": {written(t, "emails.taggedIDsSQL"), []any{company, uuid.Max, uuid.Nil, 50, 5000, "invoice"}, append(unreceived,
			`email_logs_\w+_tag1`, `email_logs_\w+_tag2`, `email_logs_\w+_tag3`, `email_logs_\w+_tag4`, `email_logs_\w+_tag5`)},
		"load": {written(t, "sql.Load"), []any{1, pq.Array([]string{id.String()})}, []string{"email_outbox_pkey"}},
	} {
		plan := storetest.Explain(t, d.SQL, tt.statement, tt.parameters...)
		for _, index := range tt.indexes {
			if !regexp.MustCompile(` using ` + index + ` `).MatchString(plan) {
				t.Errorf("%s does not use %s:\n%s", name, index, plan)
			}
		}
		if reads := regexp.MustCompile(`Seq Scan on (email_(outbox|logs_` + time.Now().UTC().Format("2006_01") + `)|dead_letter_replays)`).FindString(plan); reads != "" {
			t.Errorf("%s: %s:\n%s", name, reads, plan)
		}
	}
	for _, full := range []string{"", `ANALYZE recipient_intakes`} {
		if full != "" {
			run(t, d, full)
		}
		plan := storetest.Explain(t, d.SQL, written(t, "recipient.returnIntakesSQL"), 900000, uuid.Nil, uuid.Nil, 5000)
		if !strings.Contains(plan, "Index Cond: (id = i.outbox_id)") || !strings.Contains(plan, "Index Cond: (id = ANY ") {
			t.Errorf("returnIntakes scans the outbox:\n%s", plan)
		}
	}
}

// A lane in which a million emails are due is one probe of the index, not a million.
func TestPlans_WaitingLanesOfABacklog(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	like := d.Accept(t, d.Company(t), nil)
	run(t, d, `
		INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at, status, processed_at, next_at)
		SELECT overlay(id::text placing lpad(to_hex(n), 12, '0') from 25)::uuid, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at,
		       CASE WHEN n % 10 = 0 THEN 'PENDING' ELSE 'SENT' END, CASE WHEN n % 10 > 0 THEN now() END, now() - random() * interval '1 hour'
		FROM email_outbox, generate_series(1, 20000) n WHERE id = $1`, like)
	run(t, d, `ANALYZE email_outbox`) // as autovacuum does, which leaves alone tables of a few rows
	// A page of a table that has grown is far away, and there are many.
	db := storetest.Connect(t, d, store.Options{})
	if _, err := db.ExecContext(t.Context(), `SET random_page_cost = 40`); err != nil {
		t.Fatal(err)
	}
	plan := storetest.Explain(t, db, written(t, "dispatch.waitingLanesSQL"))
	if strings.Contains(plan, "Bitmap Heap Scan on email_outbox") || strings.Contains(plan, "Seq Scan on email_outbox") {
		t.Errorf("it reads whole lanes:\n%s", plan)
	}
}

// Statistics from a time when many emails were waiting in the queue do not make the search
// for lost tasks go through the whole outbox.
func TestPlans_LongEnqueuedAfterABacklog(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	storetest.FillEmails(t, d, 20000)
	run(t, d, `UPDATE email_outbox SET status = 'ENQUEUED', processed_at = NULL, enqueued_at = now() - interval '1 hour' WHERE status = 'SENT' AND left(md5(id::text), 1) IN ('0', '1', '2')`)
	run(t, d, `VACUUM ANALYZE email_outbox`)
	for _, limit := range []int{1, 100, 500} {
		plan := storetest.Explain(t, d.SQL, written(t, "dispatch.longEnqueuedSQL"), 60000, uuid.Nil, limit, time.Time{})
		if !strings.Contains(plan, "on email_outbox_open ") || strings.Contains(plan, "email_outbox_pkey") || strings.Contains(plan, "Seq Scan on email_outbox") {
			t.Errorf("%d of those long enqueued are not found along email_outbox_open:\n%s", limit, plan)
		}
	}
}
