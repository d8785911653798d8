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
	company, id := storetest.Grow(t, d, 50000)
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
						d.Run(t, `VACUUM ANALYZE`)
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
	load, advance, advancePlain := statement(statements.Load), statement(statements.Advance), statement(statements.AdvancePlain)
	return func(id uuid.UUID) (rowsRead int) {
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
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if err := errors.Join(load(tx, outbox.LoadParameters(id)), advance(tx, claim), advancePlain(tx, end)); err != nil {
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
	for range 10 { // Postgres settles for one plan after five
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
