package e2e_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/store/storetest"
)

// operationsStatements returns what OPERATIONS.md shows inline and begins with the verb.
func operationsStatements(t *testing.T, verb string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(rootDir, "OPERATIONS.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, span := range regexp.MustCompile("`("+verb+" [^`]+)`").FindAllStringSubmatch(string(text), -1) {
		found = append(found, span[1])
	}
	return found
}

// statementWith returns the statement of OPERATIONS.md that contains a text.
func statementWith(t *testing.T, text string) string {
	t.Helper()
	found := slices.DeleteFunc(operationsStatements(t, "SELECT"), func(s string) bool { return !strings.Contains(s, text) })
	if len(found) == 0 {
		t.Fatalf("OPERATIONS.md has no statement with %q", text)
	}
	return found[0]
}

// asked returns the rows of a statement, columns joined by a space.
func asked(t *testing.T, db *sql.DB, statement string) (found []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(sql.NullString)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		var row []string
		for _, v := range values {
			row = append(row, v.(*sql.NullString).String)
		}
		found = append(found, strings.Join(row, " "))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// operatorOf connects as gateway_operator, and makes the roles.
func operatorOf(t *testing.T, db storetest.Database) *sql.DB {
	t.Helper()
	migrate(t, db.URL, "roles")
	return open(t, as(t, db.URL, "gateway_operator"))
}

// Every statement runs as gateway_operator, but for those that the text gives to another role.
func TestRunbook_Statements(t *testing.T) {
	t.Parallel()
	operator := operatorOf(t, storetest.New(t))
	run := 0
	for _, statement := range operationsStatements(t, "SELECT") {
		if strings.Contains(statement, "<pid>") || strings.Contains(statement, "person_erasures") {
			continue
		}
		asked(t, operator, statement)
		run++
	}
	if run < 8 {
		t.Errorf("only %d statements", run)
	}
}

// The statement that names the companies whose mailings can be paused names no other, and the one for a restore returns
// the mailings whose emails are still being made.
func TestRunbook_RunningMailings(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	ids := map[string]string{}
	for _, status := range []string{"QUEUED", "PENDING", "PROCESSING", "SENDING", "PAUSED", "COMPLETED", "CANCELLED", "FAILED", "scheduled"} {
		company := db.Company(t)
		db.Run(t, "UPDATE companies SET name = $2 WHERE id = $1", company, status)
		if status == "COMPLETED" {
			db.Mailing(t, company, 0, nil)
			continue
		}
		id := db.Mailing(t, company, 1, nil)
		ids[status] = id.String()
		if status == "scheduled" {
			db.Run(t, "UPDATE mailings SET send_at = now() + interval '1 hour' WHERE id = $1", id)
			continue
		}
		db.Run(t, "UPDATE mailings SET status = $2 WHERE id = $1", id, status)
	}
	operator := operatorOf(t, db)
	got := asked(t, operator, statementWith(t, "SELECT DISTINCT c.name FROM mailings"))
	slices.Sort(got)
	if diff := cmp.Diff([]string{"PENDING", "PROCESSING", "QUEUED", "SENDING", "scheduled"}, got); diff != "" {
		t.Errorf("companies to pause (-want +got)\n%s", diff)
	}
	got = asked(t, operator, statementWith(t, "SELECT id, status, waiting_for FROM mailings"))
	var want []string
	for _, status := range []string{"QUEUED", "PENDING", "PROCESSING"} {
		want = append(want, fmt.Sprintf("%s %s ", ids[status], status))
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mailings to wait for (-want +got)\n%s", diff)
	}
}

// The statements for a rollback count what workers of the previous release would send wrongly or fail, as long as it is open.
func TestRunbook_Rollback(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	operator := operatorOf(t, db)
	company := db.Company(t)
	email := func(change string) uuid.UUID {
		id := db.Accept(t, company, nil)
		db.Run(t, "UPDATE email_outbox SET "+change+" WHERE id = $1", id)
		return id
	}
	mailing := func(change string) {
		id := db.Mailing(t, company, 1, nil)
		db.Run(t, "UPDATE mailings SET "+change+" WHERE id = $1", id)
	}
	email("priority = 5")
	storetest.OfMailing(t, db, company, db.Accept(t, company, nil)) // its email has no html in the outbox
	mailing("status = 'SENDING'")
	db.Mailing(t, company, 0, nil) // COMPLETED, and without html
	for _, statement := range []string{statementWith(t, "SELECT count(*) FROM email_outbox"), statementWith(t, "SELECT count(*) FROM mailings")} {
		if got := asked(t, operator, statement); !slices.Equal(got, []string{"0"}) {
			t.Errorf("%v of what the previous release can send: %s", got, statement)
		}
	}
	text, attached := email("html = '', text_body = 'Olá'"), email("attachments = 1")
	db.Run(t, "UPDATE email_outbox SET status = 'SENT', processed_at = now() WHERE id = $1", email("attachments = 1"))
	for _, change := range []string{"status = 'PAUSED', html = '', text_body = 'Olá'", "template = 'natal@1', template_variables = '[]'", "attachments = 1"} {
		mailing(change)
	}
	if got := asked(t, operator, statementWith(t, "SELECT count(*) FROM email_outbox")); !slices.Equal(got, []string{"2"}) {
		t.Errorf("%v emails, want %s and %s", got, text, attached)
	}
	if got := asked(t, operator, statementWith(t, "SELECT count(*) FROM mailings")); !slices.Equal(got, []string{"3"}) {
		t.Errorf("%v mailings, want 3", got)
	}
}

// A login with the roles that OPERATIONS.md names sees the session that holds a row, and ends it.
func TestRunbook_Sessions(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	login := "oncall_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	grants := operationsStatements(t, "GRANT")
	if len(grants) != 1 {
		t.Fatalf("OPERATIONS.md has the grants %q", grants)
	}
	db.Run(t, "CREATE ROLE "+login+" LOGIN")
	t.Cleanup(func() {
		if _, err := db.SQL.ExecContext(context.Background(), "DROP ROLE "+login); err != nil {
			t.Error(err)
		}
	})
	db.Run(t, strings.ReplaceAll(grants[0], "<login>", login))
	operator := operatorOf(t, db)
	holder := open(t, as(t, db.URL, "gateway_dispatcher"))
	tx, err := holder.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0; SELECT FROM event_positions FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if seen := asked(t, operator, statementWith(t, "relation = 'event_positions'::regclass")); len(seen) != 1 || strings.Contains(seen[0], "idle in transaction") {
		t.Errorf("gateway_operator sees %q", seen)
	}
	oncall := open(t, as(t, db.URL, login))
	held := asked(t, oncall, statementWith(t, "relation = 'event_positions'::regclass"))
	if len(held) != 1 || !regexp.MustCompile(`^\d+ gateway_dispatcher idle in transaction \d{4}-.* FOR UPDATE$`).MatchString(held[0]) {
		t.Fatalf("the session that holds the row is %q", held)
	}
	pid, _, _ := strings.Cut(held[0], " ")
	asked(t, oncall, strings.ReplaceAll(statementWith(t, "pg_terminate_backend"), "<pid>", pid))
	if err := tx.Commit(); err == nil {
		t.Error("the transaction was committed")
	}
}
