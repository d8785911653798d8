package store_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/lib/pq"

	"email-gateway/shared/store"
	"email-gateway/shared/store/internal/statementtest"
	"email-gateway/shared/store/storetest"
)

// Postgres prepares each file as it is, finds the types that the description of its parameters names, and runs the line
// of its header that explains it.
func TestStatementFiles_ArePreparedAndExplained(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	for _, f := range statementtest.Files() {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			db := storetest.Connect(t, d, store.Options{})
			statement := statementFile(t, f.Name)
			parameters := statementtest.Parameters(statement)
			if _, err := db.ExecContext(t.Context(), "PREPARE "+f.Name+" AS "+statement); err != nil {
				t.Fatal(err)
			}
			described := make([]string, len(parameters))
			for i, p := range parameters {
				described[i] = p.Type
			}
			var found, want string
			err := db.QueryRowContext(t.Context(), `SELECT parameter_types::text, $2::regtype[]::text FROM pg_prepared_statements WHERE name = $1`,
				f.Name, pq.Array(described)).Scan(&found, &want)
			if err != nil || found != want {
				t.Errorf("Postgres takes the parameters for %s, they are described as %s (%v)", found, want, err)
			}
			execute := regexp.MustCompile(`(?m)^-- EXPLAIN (EXECUTE .*;)$`).FindStringSubmatch(statement)
			if execute == nil {
				t.Fatal("no line of the header explains the statement")
			}
			storetest.Explain(t, db, execute[1])
		})
	}
}

// The command of sql/README.md explains each file.
func TestStatementFiles_ReadmesCommandExplainsThem(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skip("there is no psql")
	}
	readme, err := os.ReadFile("sql/README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```sh\n(name=advance\n.*?)```").FindSubmatch(readme)
	if block == nil {
		t.Fatal("README.md has no command for advance")
	}
	d := storetest.New(t)
	for _, f := range statementtest.Files() {
		script := strings.Replace(string(block[1]), "name=advance\n", fmt.Sprintf("name=%s\n", f.Name), 1)
		shell := exec.CommandContext(t.Context(), "sh", "-ec", script)
		shell.Dir = "../.."
		shell.Env = append(os.Environ(), "DATABASE_URL="+d.URL)
		output, err := shell.CombinedOutput()
		if err != nil || !strings.Contains(string(output), "QUERY PLAN") || strings.Contains(string(output), "ERROR") {
			t.Errorf("%s: %v\n%s", f.Name, err, output)
		}
	}
}

// statementFile reads a file of sql.
func statementFile(tb testing.TB, name string) string {
	tb.Helper()
	text, err := os.ReadFile("sql/" + name + ".sql")
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}
