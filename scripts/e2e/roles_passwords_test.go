package e2e_test

import (
	"database/sql"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A role has one password for all databases of a server. A second installation cannot replace the password that the first one has
// set: its migrate roles fails before it changes anything.
func TestRoles_PasswordsOfTwoInstallations(t *testing.T) {
	t.Parallel()
	first, _ := ownPostgres(t)
	requirePasswords(t, first.SQL)
	second, err := url.Parse(first.URL)
	if err != nil {
		t.Fatal(err)
	}
	second.Path = "/staging"
	const password = `it's "quoted"\ é` // of production
	migrate := func(database string, env ...string) (string, error) {
		command := exec.CommandContext(t.Context(), filepath.Join(binDir, "migrate"), "up", "roles")
		command.Env = append(env, "DATABASE_URL="+database)
		out, err := command.CombinedOutput()
		return string(out), err
	}
	logsIn := func() error {
		u, err := url.Parse(as(t, first.URL, "gateway_api"))
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword("gateway_api", password)
		db, err := sql.Open("postgres", u.String())
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		return db.PingContext(t.Context())
	}

	if out, err := migrate(first.URL, "GATEWAY_API_PASSWORD="+password); err != nil {
		t.Fatalf("the first installation: %v\n%s", err, out)
	}
	if err := logsIn(); err != nil {
		t.Errorf("the password of the first installation is not set: %v", err)
	}
	if _, err := first.SQL.ExecContext(t.Context(), `DO $$ BEGIN
		ASSERT (SELECT array_agg(rolname::text) FROM pg_authid WHERE rolname LIKE 'gateway\_%' AND rolpassword IS NOT NULL) = '{gateway_api}', 'a role without a variable has a password';
	END $$`); err != nil {
		t.Error(err)
	}
	if _, err := first.SQL.ExecContext(t.Context(), "CREATE DATABASE staging"); err != nil {
		t.Fatal(err)
	}

	out, err := migrate(second.String(), "GATEWAY_API_PASSWORD=another", "GATEWAY_WORKER_PASSWORD=another")
	of := strings.TrimPrefix(mustPath(t, first.URL), "/")
	for role, variable := range map[string]string{"gateway_api": "GATEWAY_API_PASSWORD", "gateway_worker": "GATEWAY_WORKER_PASSWORD"} {
		want := "the password of the role " + role + " is not changed to that of " + variable + ", because other databases of this server use the role: " + of + "."
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("the second installation: %v, printed\n%swant %q", err, out, want)
		}
	}
	if err := logsIn(); err != nil {
		t.Errorf("the second installation has changed the password: %v", err)
	}
	if _, err := open(t, second.String()).ExecContext(t.Context(), `DO $$ BEGIN
		ASSERT NOT has_table_privilege('gateway_api', 'companies', 'SELECT'), 'the role has grants in the second database';
	END $$`); err != nil {
		t.Error(err)
	}
	if out, err := migrate(second.String()); err != nil {
		t.Errorf("the second installation without passwords: %v\n%s", err, out)
	}
	if out, err := migrate(first.URL, "GATEWAY_API_PASSWORD="+password); err != nil {
		t.Errorf("the first installation again, with the same password: %v\n%s", err, out)
	}
	if out, err := migrate(first.URL, "GATEWAY_API_PASSWORD=new"); err == nil || !strings.Contains(out, "use the role: staging.") {
		t.Errorf("a new password of the first installation: %v\n%s", err, out)
	}
	if err := logsIn(); err != nil {
		t.Error(err)
	}
}

func mustPath(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u.Path
}

// requirePasswords makes the server ask all roles but its superuser for a password.
func requirePasswords(t *testing.T, db *sql.DB) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), `DO $$ BEGIN
		EXECUTE format('COPY (VALUES (''host all %I 127.0.0.1/32 trust''), (''host all all 127.0.0.1/32 scram-sha-256'')) TO %L', current_user, current_setting('hba_file'));
		PERFORM pg_reload_conf();
	END $$`); err != nil {
		t.Fatal(err)
	}
}
