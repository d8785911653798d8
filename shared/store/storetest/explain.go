package storetest

import (
	"context"
	"database/sql"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/store"
	"email-gateway/shared/store/internal/pg"
)

// Connect opens a handle with a single connection, so that prepared plans are kept, and with the settings of the programs'
// connections.
func Connect(tb testing.TB, d Database, o store.Options) *sql.DB {
	tb.Helper()
	dsn, err := pg.DataSource(d.URL, o)
	if err != nil {
		tb.Fatal(err)
	}
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// Querier is a *sql.DB, a *sql.Conn or a *sql.Tx.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Explain returns the plan of a statement.
func Explain(tb testing.TB, db Querier, statement string, parameters ...any) string {
	tb.Helper()
	rows, err := db.QueryContext(tb.Context(), "EXPLAIN "+statement, parameters...)
	if err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			tb.Fatal(err)
		}
		plan.WriteString(line + "\n")
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return plan.String()
}

// buffersRead is the first of a plan's lines about buffers, which includes those of all nodes.
var buffersRead = regexp.MustCompile(`Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?`)

// Buffers runs a statement and returns its plan, and how many buffers it read. A statement that changes rows is rolled back.
func Buffers(tb testing.TB, db *sql.DB, statement string, parameters ...any) (plan string, read int) {
	tb.Helper()
	tx, err := db.BeginTx(tb.Context(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	return BuffersOn(tb, tx, statement, parameters...)
}

// BuffersOn is Buffers without the rollback.
func BuffersOn(tb testing.TB, on Querier, statement string, parameters ...any) (plan string, read int) {
	tb.Helper()
	plan = Explain(tb, on, "(ANALYZE, BUFFERS, TIMING OFF) "+statement, parameters...)
	counts := buffersRead.FindStringSubmatch(plan)
	if counts == nil {
		tb.Fatalf("a plan without buffers:\n%s", plan)
	}
	for _, count := range counts[1:] {
		n, _ := strconv.Atoi(count) // digits, or ""
		read += n
	}
	return plan, read
}

// CheckStep checks that the plan of a step that deletes or empties rows uses the indexes, sorts only the selected rows,
// and scans no whole table.
func CheckStep(tb testing.TB, name, plan string, indexes []string) {
	tb.Helper()
	for _, index := range indexes {
		if !regexp.MustCompile(` (using|Index Scan on) ` + index + ` `).MatchString(plan) {
			tb.Errorf("%s does not use %s:\n%s", name, index, plan)
		}
	}
	// The plan must read the next rows in the index's order instead of sorting all rows. It may sort the selected rows.
	for _, part := range strings.SplitAfter(plan, "CTE ") {
		sorts := regexp.MustCompile(`->  Sort .*\n +Sort Key: (r\.deleted_at|mailing_rejects\.line_no|(\w+\.)?(expires_at|received_at|created_at))`)
		if strings.HasPrefix(part, "seen\n") || strings.HasPrefix(part, "next\n") {
			sorts = regexp.MustCompile(`->  Sort .*\n +Sort Key: .*`)
		}
		if found := sorts.FindString(part); found != "" {
			tb.Errorf("%s: %s:\n%s", name, found, plan)
		}
	}
	if reads := regexp.MustCompile(`Seq Scan on (email_outbox|mailing_entries|mailing_rejects|mailings|recipients|recipient_intakes|outbox_aggregates|idempotency_keys|ses_events|dead_letters|email_\w+` +
		time.Now().UTC().Format("_2006_01") + `) `).FindString(plan); reads != "" {
		tb.Errorf("%s: %s:\n%s", name, reads, plan)
	}
}
