package schema_test

import (
	"database/sql"
	"flag"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write schema.sql")

const dumpHeader = `-- The schema as the migrations make it, to read and to search. It is generated and never run: TestDump compares it with a migrated
-- database, and this writes it again: ./scripts/test.sh ./schema/ -run TestDump -update
--
-- The partitions by month of email_logs and email_events are left out, and so are privileges, which roles.sql grants.
-- README.md describes each table and index.

`

// schema.sql is the schema of a migrated database. Another release of Postgres writes the same schema in another form: the test
// then checks nothing.
func TestDump(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	version, err := exec.CommandContext(t.Context(), "pg_dump", "--version").Output()
	if err != nil {
		t.Fatalf("pg_dump: %v", err)
	}
	if !strings.Contains(string(version), " 15.") || !strings.HasPrefix(query(t, db, "SHOW server_version")[0], "15.") {
		if *update {
			t.Fatalf("-update needs Postgres 15, and this is %s", version)
		}
		t.Skipf("schema.sql is in the form of Postgres 15, and this is %s", version)
	}
	want := dumpHeader + dump(t, db)
	if *update {
		if err := os.WriteFile("schema.sql", []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile("schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("schema.sql is not the schema of the migrations: run this test with -update")
	}
}

var (
	function = regexp.MustCompile(`(?s)CREATE FUNCTION [^$]*AS \$\w*\$.*?\$\w*\$;\n`)
	// unread matches what a reader does not need: the settings of the session, and comments with the names of schemas and owners.
	unread = regexp.MustCompile(`(?m)^(SET .*;|SELECT pg_catalog\.set_config.*;|--|-- .*|\\(un)?restrict .*)\n`)
	gap    = regexp.MustCompile(`\n{3,}`)
)

// dump returns the tables with their constraints, indexes and triggers, and then the functions.
func dump(t *testing.T, db *sql.DB) string {
	t.Helper()
	u := databaseURL(t, query(t, db, "SELECT current_database()")[0])
	out, err := exec.CommandContext(t.Context(), "pg_dump", "--schema-only", "--no-owner", "--no-privileges", "--exclude-table=goose_*",
		"--exclude-table=email_logs_*", "--exclude-table=email_events_*", "--dbname="+u).CombinedOutput()
	if err != nil {
		t.Fatalf("pg_dump: %v\n%s", err, out)
	}
	functions := function.FindAllString(string(out), -1)
	tables := unread.ReplaceAllString(function.ReplaceAllString(string(out), ""), "")
	text := strings.ReplaceAll(tables+"\n"+strings.Join(functions, "\n"), "public.", "")
	return strings.TrimSpace(gap.ReplaceAllString(text, "\n\n")) + "\n"
}
