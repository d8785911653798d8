package schema_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"email-gateway/schema"
)

// A migration is repeated after an interruption behind any of the statements that wait for other transactions, and after
// one that has left an invalid index, with the same result.
func TestUp_Interrupted(t *testing.T) {
	t.Parallel()
	db := emptyDatabase(t)
	interrupted := 0
	for i, file := range files(t) {
		version, statements := int64(i+1), withoutTransaction(t, file)
		if statements == nil {
			continue
		}
		move(t, db, version)
		want := catalog(t, db)
		for n := range statements {
			if !strings.Contains(statements[n], "INDEX CONCURRENTLY") { // only these wait
				continue
			}
			for _, state := range []string{"true", "false"} {
				made := concurrentIndex.FindStringSubmatch(statements[n])
				if made == nil && state == "false" {
					continue
				}
				interrupted++
				move(t, db, version-1)
				runAll(t, db, statements[:n+1])
				if made != nil {
					runAll(t, db, []string{"UPDATE pg_index SET indisvalid = " + state + " WHERE indexrelid = '" + made[1] + "'::regclass"})
				}
				if err := schema.MoveTo(t.Context(), db, version); err != nil {
					t.Fatalf("%s, again after statement %d (index valid: %s): %v\n%s", file, n+1, state, err, statements[n])
				}
				if got := catalog(t, db); !slices.Equal(got, want) {
					t.Errorf("%s, again after statement %d: %v, want %v", file, n+1, got, want)
				}
				if invalid := query(t, db, `SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid`); len(invalid) > 0 {
					t.Errorf("%s, again after statement %d: %v are not valid", file, n+1, invalid)
				}
			}
		}
	}
	if interrupted < 30 {
		t.Errorf("only %d interruptions", interrupted)
	}
}

// A migration is cancelled while its index waits for the transaction of another application, and then repeated.
func TestUp_Cancelled(t *testing.T) {
	t.Parallel()
	db := emptyDatabase(t)
	move(t, db, 2)
	other, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.ExecContext(t.Context(), `SELECT FROM companies`); err != nil { // takes the snapshot
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- schema.Up(ctx, db) }()
	awaitRow(t, db, `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%CREATE INDEX CONCURRENTLY%'`)
	cancel()
	if err := <-ended; err == nil {
		t.Fatal("the cancelled migration has no error")
	}
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := schema.Up(t.Context(), db); err != nil {
		t.Error(err)
	}
}

// A migration that is repeated does not add a CHECK again that it has validated: that read all logs.
func TestUp_KeepsValidated(t *testing.T) {
	t.Parallel()
	db := emptyDatabase(t)
	for _, c := range []struct {
		version                  int64
		table, constraint, final string
	}{
		{36, "email_logs", "email_logs_delivery_problem", "email_logs_delivery_problem"},
		{60, "email_events", "email_events_path_new", "email_events_path"},
	} {
		oid := func(name string) []string {
			return query(t, db, `SELECT oid::text FROM pg_constraint WHERE convalidated AND conrelid = '`+c.table+`'::regclass AND conname = '`+name+`'`)
		}
		move(t, db, c.version-1)
		runAll(t, db, upTo(t, c.version, "VALIDATE CONSTRAINT"))
		validated := oid(c.constraint)
		move(t, db, c.version)
		if got := oid(c.final); len(got) != 1 || !slices.Equal(got, validated) {
			t.Errorf("%d: the CHECK is %v and was validated as %v", c.version, got, validated)
		}
	}
}

// The migration that adds an index to each partition is repeated after a dispatcher has made another partition, with
// the same index.
func TestUp_PartitionMadeMeanwhile(t *testing.T) {
	t.Parallel()
	db := emptyDatabase(t)
	move(t, db, 35)
	runAll(t, db, append(upTo(t, 36, "ON ONLY email_logs"), `SELECT make_log_partition('email_logs', 3)`))
	move(t, db, 36)
	if invalid := query(t, db, `SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid`); len(invalid) > 0 {
		t.Errorf("%v are not valid", invalid)
	}
}

// upTo returns the statements of a migration up to the first one that contains text.
func upTo(t *testing.T, version int64, text string) []string {
	t.Helper()
	statements := withoutTransaction(t, files(t)[version-1])
	n := slices.IndexFunc(statements, func(statement string) bool { return strings.Contains(statement, text) })
	return statements[:n+1]
}

var concurrentIndex = regexp.MustCompile(`CREATE (?:UNIQUE )?INDEX CONCURRENTLY (\w+)`)

func move(t *testing.T, db *sql.DB, version int64) {
	t.Helper()
	if err := schema.MoveTo(t.Context(), db, version); err != nil {
		t.Fatal(err)
	}
}

// runAll executes statements in one session, which keeps no settings.
func runAll(t *testing.T, db *sql.DB, statements []string) {
	t.Helper()
	session, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	for _, statement := range append(slices.Clone(statements), "RESET ALL") {
		if _, err := session.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// withoutTransaction returns the statements of a migration's Up, or nil if they run in a transaction.
func withoutTransaction(t *testing.T, file string) (statements []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("migrations", file))
	if err != nil {
		t.Fatal(err)
	}
	_, up, _ := strings.Cut(string(text), "-- +goose Up\n")
	up, _, _ = strings.Cut(up, "-- +goose Down\n")
	if !strings.Contains(string(text), "-- +goose NO TRANSACTION\n") {
		return nil
	}
	var statement strings.Builder
	whole := false
	for line := range strings.Lines(up) {
		code, _, _ := strings.Cut(line, "--")
		switch {
		case strings.HasPrefix(line, "-- +goose StatementBegin"):
			whole = true
			continue
		case strings.HasPrefix(line, "-- +goose StatementEnd"):
			whole = false
		case whole:
			statement.WriteString(line)
			continue
		default:
			statement.WriteString(code + "\n")
			if !strings.HasSuffix(strings.TrimSpace(code), ";") {
				continue
			}
		}
		statements = append(statements, strings.TrimSpace(statement.String()))
		statement.Reset()
	}
	return statements
}

// awaitRow waits until the query returns a row.
func awaitRow(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	for {
		var found bool
		if err := db.QueryRowContext(t.Context(), "SELECT EXISTS ("+query+")").Scan(&found); err != nil {
			t.Fatal(err)
		}
		if found {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatalf("no row: %s", query)
		}
	}
}
