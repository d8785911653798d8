package outbox_test

import (
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/outbox"
	statements "email-gateway/shared/store/sql"
	"email-gateway/shared/store/storetest"
)

// On tables that have grown, a group's move goes by the indexes that the statement's header names, by the planner's free choice.
func TestPlans(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, id := storetest.FillEmails(t, d, 20000)
	d.Run(t, `ANALYZE`)
	claim := []outbox.Transition{storetest.ClaimOf(company, id, uuid.New(), "C")}
	for statement, parameters := range map[string]func([]outbox.Transition) ([]any, error){
		statements.Advance: outbox.AdvanceParameters, statements.AdvancePlain: outbox.AdvancePlainParameters,
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
// It must still be good when they have grown without an ANALYZE. With force_generic_plan it is made on tables without a page, as
// for a new month's partition of email_logs that was analyzed while it was empty. Behind a pooler
// nothing is prepared and the connection has no settings: the planner sees how large the tables are.
func TestPlans_MadeOnSmallTables(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 2, 100} {
		for _, analyzed := range []bool{true, false} {
			modes := []string{"auto", "pooled"}
			if size <= 2 && analyzed {
				modes = append(modes, "force_generic_plan")
			}
			for _, mode := range modes {
				t.Run(fmt.Sprintf("%d emails, analyzed %v, %s", size, analyzed, mode), func(t *testing.T) {
					t.Parallel()
					d := storetest.New(t)
					company := d.Company(t)
					work := claimWork(t, d, mode)
					for range size {
						storetest.Apply(t, d, storetest.CancelOf(d.Accept(t, company, nil)))
					}
					if analyzed {
						d.Run(t, `VACUUM ANALYZE`)
					}
					var before, after tableWork
					for range 10 { // with auto, Postgres keeps one plan after five executions
						before = work(company, d.Accept(t, company, nil))
					}
					storetest.FillEmails(t, d, 20000)
					after = work(company, d.Accept(t, company, nil))
					if rows, pages := after.rows-before.rows, after.pages-before.pages; rows > 200 || pages > 200 {
						t.Errorf("one email reads %d rows of 20,000 more than before, and %d pages more", rows, pages)
					}
				})
			}
		}
	}
}

// tableWork is what a connection has read of the tables of emails.
type tableWork struct {
	rows int
	// pages counts those of indexes too: a plan may read a whole index, because the email's id is only its last column,
	// and fetch no row but the right one.
	pages int
}

// claimWork returns a function that loads, claims and ends an email on a connection of a program, and returns what that reads.
// mode is the connection's plan_cache_mode, or "pooled".
func claimWork(t *testing.T, d storetest.Database, mode string) func(company, id uuid.UUID) tableWork {
	t.Helper()
	pooled := mode == "pooled"
	db, err := storetest.Connect(t, d, store.Options{Pooled: pooled}).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if !pooled {
		if _, err := db.ExecContext(t.Context(), `SET plan_cache_mode = `+mode); err != nil {
			t.Fatal(err)
		}
	}
	statement := func(text string) func(parameters []any) error {
		if pooled {
			return func(parameters []any) error { return one(db.QueryContext(t.Context(), text, parameters...)) }
		}
		prepared, err := db.PrepareContext(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		return func(parameters []any) error { return one(prepared.QueryContext(t.Context(), parameters...)) }
	}
	load, advance, advancePlain := statement(statements.Load), statement(statements.Advance), statement(statements.AdvancePlain)
	advanceWaiting := statement(statements.AdvanceWaiting)
	read := func() (w tableWork) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), `SELECT pg_stat_force_next_flush()`); err != nil {
			t.Fatal(err)
		}
		err := db.QueryRowContext(t.Context(), `SELECT sum(s.seq_tup_read + s.idx_tup_fetch), sum(i.heap_blks_hit + i.heap_blks_read + i.idx_blks_hit + i.idx_blks_read)
			FROM pg_stat_user_tables s JOIN pg_statio_user_tables i USING (relid) WHERE s.relname LIKE 'email_%' AND s.idx_tup_fetch IS NOT NULL`).Scan(&w.rows, &w.pages)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	return func(company, id uuid.UUID) tableWork {
		t.Helper()
		token := uuid.New()
		claim, err := outbox.AdvanceParameters([]outbox.Transition{storetest.ClaimOf(company, id, token, "C")})
		if err != nil {
			t.Fatal(err)
		}
		end, err := outbox.AdvancePlainParameters([]outbox.Transition{storetest.SentOf(id, token)})
		if err != nil {
			t.Fatal(err)
		}
		again, err := outbox.AdvanceParameters([]outbox.Transition{storetest.SentOf(id, token)})
		if err != nil {
			t.Fatal(err)
		}
		begun := read()
		run := func(text string) error {
			_, err := db.ExecContext(t.Context(), text)
			return err
		}
		// Not an sql.Tx: in one, statements of the connection would be prepared anew.
		if err := errors.Join(run(`BEGIN`), load(outbox.LoadParameters(id)), advance(claim), advancePlain(end), advanceWaiting(again), run(`ROLLBACK`)); err != nil {
			t.Fatal(err)
		}
		ended := read()
		return tableWork{rows: ended.rows - begun.rows, pages: ended.pages - begun.pages}
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
	d.Run(t, `
		DO $$
		BEGIN
			FOR n IN 1..24 LOOP
				EXECUTE format('CREATE TABLE %I PARTITION OF email_logs FOR VALUES FROM (%L) TO (%L)', 'email_logs_past_' || n,
					first_id_at('2020-01-01'::timestamptz + n * interval '31 days'), first_id_at('2020-01-01'::timestamptz + (n + 1) * interval '31 days'));
			END LOOP;
		END
		$$`)
	db := storetest.Connect(t, d, store.Options{})
	advance, err := db.PrepareContext(t.Context(), statements.Advance)
	if err != nil {
		t.Fatal(err)
	}
	defer advance.Close()
	for range 10 { // Postgres keeps one plan after five executions
		claim, err := outbox.AdvanceParameters([]outbox.Transition{storetest.ClaimOf(company, d.Accept(t, company, nil), uuid.New(), "C")})
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
	claim, err := outbox.AdvanceParameters([]outbox.Transition{storetest.ClaimOf(company, d.Accept(t, company, nil), uuid.New(), "C")})
	if err != nil {
		t.Fatal(err)
	}
	plan := storetest.Explain(t, db, statements.Advance, claim...)
	if !strings.Contains(plan, "Subplans Removed: 26") || strings.Count(plan, "on email_logs_") != 1 {
		t.Errorf("of 27 partitions more than one is read:\n%s", plan)
	}
}
