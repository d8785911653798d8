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
