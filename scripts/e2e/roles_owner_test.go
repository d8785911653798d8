package e2e_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The tables' owner may neither create nor alter roles, and another role has created them: migrate roles grants, and
// warns for each role that has no settings.
func TestRoles_OfAnotherRole(t *testing.T) {
	t.Parallel()
	db, _ := ownPostgres(t)
	programs := []string{"gateway_api", "gateway_dispatcher", "gateway_worker", "gateway_operator", "gateway_privacy"}
	for _, statement := range []string{
		"CREATE ROLE tables_owner LOGIN", "CREATE ROLE gateway_program", "CREATE ROLE " + strings.Join(programs, " LOGIN; CREATE ROLE ") + " LOGIN",
		"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I OWNER TO tables_owner', current_database()); END $$",
	} {
		if _, err := db.SQL.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	migrate := exec.CommandContext(t.Context(), filepath.Join(binDir, "migrate"), "up", "roles")
	migrate.Env = []string{"DATABASE_URL=" + as(t, db.URL, "tables_owner")}
	var warnings strings.Builder
	migrate.Stderr = &warnings
	if err := migrate.Run(); err != nil {
		t.Fatalf("migrate up roles: %v\n%s", err, warnings.String())
	}
	for _, role := range programs {
		want := "migrate: warning: role " + role + ": idle_in_transaction_session_timeout=5s is not set, as tables_owner may not alter it\n"
		if strings.Count(warnings.String(), want) != 1 {
			t.Errorf("migrate printed %q, want %q in it", warnings.String(), want)
		}
	}
	if got := strings.Count(warnings.String(), "\n"); got != len(programs) {
		t.Errorf("migrate printed %d lines: %s", got, warnings.String())
	}
}
