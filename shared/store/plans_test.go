package store_test

import (
	"database/sql"
	"errors"
	"fmt"
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

// On tables that have grown, each hot statement goes by the index that its comment
// names, by the planner's free choice.
func TestPlans(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, id := storetest.Grow(t, d, 50000)
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
	for name, tt := range map[string]struct {
		statement  string
		parameters []any
		indexes    []string
	}{
		"takeDue":              {written(t, "takeDueSQL"), []any{lanes, since, ids, lanes, id, time.Now()}, []string{"email_outbox_lane_claim"}},
		"takeProbe":            {written(t, "takeProbeSQL"), []any{id, id}, []string{"email_outbox_pkey"}},
		"pickProbe":            {written(t, "pickProbeSQL"), []any{pq.Array(email.Queues()), 5000}, []string{"email_outbox_lane_claim", "email_outbox_pkey"}},
		"pickSafeProbe":        {written(t, "pickSafeProbeSQL"), []any{pq.Array(email.Queues()), 5000}, []string{"email_outbox_lane_claim", "email_outbox_pkey"}},
		"pickEarlyProbe":       {written(t, "pickEarlyProbeSQL"), []any{pq.Array(email.Queues()), 5000}, []string{"email_outbox_lane_claim", "email_outbox_pkey"}},
		"leaseJobs":            {written(t, "leaseJobsSQL"), []any{lanes, since, ids, lanes}, []string{"email_outbox_lane_claim"}},
		"release":              {written(t, "sql.Release"), []any{time.Now(), pq.Array([]string{id.String()}), pq.Array([]int64{0}), pq.Array([]int64{0})}, []string{"email_outbox_pkey"}},
		"waitingLanes":         {written(t, "waitingLanesSQL"), nil, []string{"email_outbox_lane_claim"}},
		"probeLanes":           {written(t, "probeLanesSQL"), []any{lanes, since, ids, 1000, 5000, 2000, lanes, since, ids}, []string{"email_outbox_lane_claim", "email_outbox_pkey"}},
		"oldestDue":            {written(t, "oldestDueSQL"), nil, []string{"email_outbox_lane_claim"}},
		"countBacklog":         {written(t, "countBacklogSQL"), []any{1000}, []string{"email_outbox_lane_claim", "email_outbox_open"}},
		"overdue":              {written(t, "overdueSQL"), []any{100}, []string{"email_outbox_open"}},
		"abandoned":            {written(t, "abandonedSQL"), []any{5000, 500}, []string{"email_outbox_open"}},
		"unresolved":           {written(t, "unresolvedSQL"), []any{time.Now(), uuid.Nil, 50}, []string{"email_outbox_open"}},
		"unresolved, first":    {written(t, "unresolvedSQL"), []any{time.Time{}, uuid.Nil, 5000}, []string{"email_outbox_open"}},
		"unknownCauses":        {written(t, "unknownCausesSQL"), []any{pq.Array([]string{logged}), logged, logged}, []string{`email_events_\w+_pkey`}},
		"longEnqueued":         {written(t, "longEnqueuedSQL"), []any{60000, uuid.Nil, 500}, []string{"email_outbox_open"}},
		"readFeedback":         {written(t, "readFeedbackSQL"), []any{logged, theirs, "", "SENT", "{}", ""}, []string{"email_outbox_pkey", `email_logs_\w+_pkey`}},
		"takeFeedback":         {written(t, "takeFeedbackSQL"), []any{"n", "Delivery", "", id, nil, "{}", nil}, []string{"email_outbox_pkey", `email_logs_\w+_pkey`}},
		"appendFeedback":       {written(t, "appendFeedbackSQL"), []any{id, "[]", "", false}, []string{"email_outbox_pkey", `email_logs_\w+_pkey`}},
		"dueReplays":           {written(t, "dueReplaysSQL"), nil, []string{"dead_letter_replays_open"}},
		"runningReplays":       {written(t, "runningReplaysSQL"), []any{company, id}, []string{"dead_letter_replays_open"}},
		"saveReplay":           {written(t, "saveReplaySQL"), []any{id, 1, 0, 0, nil, nil, false}, []string{"dead_letter_replays_pkey"}},
		"listIDs":              {written(t, "listIDsSQL"), []any{company, uuid.Max, uuid.Nil, 50}, []string{"email_outbox_company", `email_logs_\w+_company_id_outbox_id_idx`}},
		"searchIDs, recipient": {written(t, "searchIDsSQL"), search("User77@Example.com", "", ""), append(unreceived, `email_logs_\w+_company_id_lower_outbox_id_idx`)},
		"searchIDs, external":  {written(t, "searchIDsSQL"), search("", "CUST-77", ""), append(unreceived, `email_logs_\w+_company_id_external_id_outbox_id_idx`)},
		"searchIDs, request":   {written(t, "searchIDsSQL"), search("", "", "req-77"), append(unreceived, `email_logs_\w+_company_id_request_id_outbox_id_idx`)},
		"taggedIDs": {written(t, "taggedIDsSQL"), []any{company, uuid.Max, uuid.Nil, 50, 5000, "invoice"}, append(unreceived,
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
		plan := storetest.Explain(t, d.SQL, written(t, "recipient.returnIntakesSQL"), 900000, 1000)
		if !strings.Contains(plan, "Index Cond: (id = i.outbox_id)") || !strings.Contains(plan, "Index Cond: (id = ANY ") {
			t.Errorf("returnIntakes goes through the outbox:\n%s", plan)
		}
	}
	claim := []store.Transition{storetest.ClaimOf(company, id, uuid.New(), "C")}
	for statement, parameters := range map[string]func([]store.Transition) ([]any, error){
		written(t, "sql.Advance"): store.AdvanceParameters, written(t, "sql.AdvancePlain"): store.AdvancePlainParameters,
	} {
		transitions, err := parameters(claim)
		if err != nil {
			t.Fatal(err)
		}
		plan := storetest.Explain(t, storetest.Connect(t, d, store.Options{}), statement, transitions...)
		if strings.Count(plan, " using email_outbox_pkey ") != 3 || !regexp.MustCompile(` using email_logs_\w+_pkey `).MatchString(plan) {
			t.Errorf("advance:\n%s", plan)
		}
		if !strings.HasPrefix(plan, "Append ") || !strings.Contains(plan, "NOT (hashed SubPlan ") {
			t.Errorf("advance reads all that moved for each email of the group:\n%s", plan)
		}
	}
}

// A prepared statement's plan is made once, on tables that may be nearly empty then.
// It must still be good when they have grown without an ANALYZE. Behind a pooler
// nothing is prepared and the connection has no settings: the planner sees how large the tables are.
func TestPlans_MadeOnSmallTables(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 2, 10, 100} {
		for _, analyzed := range []bool{true, false} {
			for _, pooled := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d emails, analyzed %v, pooled %v", size, analyzed, pooled), func(t *testing.T) {
					t.Parallel()
					d := storetest.New(t)
					company := d.Company(t)
					rowsRead := claimRows(t, d, company, pooled)
					for range size {
						storetest.Apply(t, d, storetest.CancelOf(d.Accept(t, company, nil)))
					}
					if analyzed {
						run(t, d, `VACUUM ANALYZE`)
					}
					before := 0
					for range 10 { // Postgres settles for one plan after five
						before = rowsRead(d.Accept(t, company, nil))
					}
					storetest.Grow(t, d, 20000)
					if n := rowsRead(d.Accept(t, company, nil)) - before; n > 200 { // of 20,000; each counts those before it too
						t.Errorf("%d rows read for one email", n)
					}
				})
			}
		}
	}
}

// claimRows returns a function that loads, claims and ends an email on a connection of a program, and tells
// how many rows that reads.
func claimRows(t *testing.T, d storetest.Database, company uuid.UUID, pooled bool) func(id uuid.UUID) int {
	t.Helper()
	db := storetest.Connect(t, d, store.Options{Pooled: pooled})
	statement := func(text string) func(tx *sql.Tx, parameters []any) error {
		if pooled {
			return func(tx *sql.Tx, parameters []any) error {
				return one(tx.QueryContext(t.Context(), text, parameters...))
			}
		}
		prepared, err := db.PrepareContext(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		return func(tx *sql.Tx, parameters []any) error {
			own := tx.StmtContext(t.Context(), prepared)
			defer own.Close()
			return one(own.QueryContext(t.Context(), parameters...))
		}
	}
	load, advance, advancePlain := statement(written(t, "sql.Load")), statement(written(t, "sql.Advance")), statement(written(t, "sql.AdvancePlain"))
	return func(id uuid.UUID) (rowsRead int) {
		t.Helper()
		token := uuid.New()
		claim, err := store.AdvanceParameters([]store.Transition{storetest.ClaimOf(company, id, token, "C")})
		if err != nil {
			t.Fatal(err)
		}
		end, err := store.AdvancePlainParameters([]store.Transition{storetest.SentOf(id, token)})
		if err != nil {
			t.Fatal(err)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if err := errors.Join(load(tx, store.LoadParameters(id)), advance(tx, claim), advancePlain(tx, end)); err != nil {
			t.Fatal(err)
		}
		err = tx.QueryRowContext(t.Context(), `SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables WHERE relname LIKE 'email_%'`).Scan(&rowsRead)
		if err != nil {
			t.Fatal(err)
		}
		return rowsRead
	}
}

// one reads the rows of a statement that returns one.
func one(rows *sql.Rows, err error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		n++
	}
	if n != 1 {
		return fmt.Errorf("%d rows", n)
	}
	return rows.Err()
}

// However many partitions there are, the one plan that is made for all groups opens those
// that the group's emails are in.
func TestPlans_OpenThePartitionsOfTheGroup(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	run(t, d, `
		DO $$
		BEGIN
			FOR n IN 1..24 LOOP
				EXECUTE format('CREATE TABLE %I PARTITION OF email_logs FOR VALUES FROM (%L) TO (%L)', 'email_logs_past_' || n,
					first_id_at('2020-01-01'::timestamptz + n * interval '31 days'), first_id_at('2020-01-01'::timestamptz + (n + 1) * interval '31 days'));
			END LOOP;
		END
		$$`)
	db := storetest.Connect(t, d, store.Options{})
	advance, err := db.PrepareContext(t.Context(), written(t, "sql.Advance"))
	if err != nil {
		t.Fatal(err)
	}
	defer advance.Close()
	for range 10 { // Postgres settles for one plan after five
		claim, err := store.AdvanceParameters([]store.Transition{storetest.ClaimOf(company, d.Accept(t, company, nil), uuid.New(), "C")})
		if err != nil {
			t.Fatal(err)
		}
		if err := one(advance.QueryContext(t.Context(), claim...)); err != nil {
			t.Fatal(err)
		}
	}
	var whole, made int
	if err := db.QueryRowContext(t.Context(), `SELECT sum(generic_plans), sum(custom_plans) FROM pg_prepared_statements WHERE statement LIKE '%found AS%'`).Scan(&whole, &made); err != nil {
		t.Fatal(err)
	}
	if whole != 5 || made != 5 {
		t.Errorf("the same plan was used %d times, and made anew %d times", whole, made)
	}
	claim, err := store.AdvanceParameters([]store.Transition{storetest.ClaimOf(company, d.Accept(t, company, nil), uuid.New(), "C")})
	if err != nil {
		t.Fatal(err)
	}
	plan := storetest.Explain(t, db, written(t, "sql.Advance"), claim...)
	if !strings.Contains(plan, "Subplans Removed: 26") || strings.Count(plan, "on email_logs_") != 1 {
		t.Errorf("of 27 partitions more than one is read:\n%s", plan)
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
		FROM email_outbox, generate_series(1, 50000) n WHERE id = $1`, like)
	run(t, d, `ANALYZE email_outbox`) // as autovacuum does, which leaves alone tables of a few rows
	// A page of a table that has grown is far away, and there are many.
	db := storetest.Connect(t, d, store.Options{})
	if _, err := db.ExecContext(t.Context(), `SET random_page_cost = 40`); err != nil {
		t.Fatal(err)
	}
	plan := storetest.Explain(t, db, written(t, "waitingLanesSQL"))
	if strings.Contains(plan, "Bitmap Heap Scan on email_outbox") || strings.Contains(plan, "Seq Scan on email_outbox") {
		t.Errorf("it reads whole lanes:\n%s", plan)
	}
}

// Statistics from a time when many emails were waiting in the queue do not make the search
// for lost tasks go through the whole outbox.
func TestPlans_LongEnqueuedAfterABacklog(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	storetest.Grow(t, d, 20000)
	run(t, d, `UPDATE email_outbox SET status = 'ENQUEUED', processed_at = NULL, enqueued_at = now() - interval '1 hour' WHERE status = 'SENT' AND left(md5(id::text), 1) IN ('0', '1', '2')`)
	run(t, d, `VACUUM ANALYZE email_outbox`)
	for _, limit := range []int{1, 100, 500} {
		plan := storetest.Explain(t, d.SQL, written(t, "longEnqueuedSQL"), 60000, uuid.Nil, limit)
		if !strings.Contains(plan, "on email_outbox_open ") || strings.Contains(plan, "email_outbox_pkey") || strings.Contains(plan, "Seq Scan on email_outbox") {
			t.Errorf("%d of those long enqueued are not found along email_outbox_open:\n%s", limit, plan)
		}
	}
}
