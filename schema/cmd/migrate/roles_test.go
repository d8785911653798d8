package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"io"
	"net/url"
	"os"
	"strings"
	"testing"
)

// Roles can be granted repeatedly, and on a server that already has them.
func TestRun_Roles(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	for _, command := range []string{"up", "roles", "roles"} {
		if err := run(t.Context(), []string{command}, only("DATABASE_URL", database), &bytes.Buffer{}, io.Discard); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
	}
	db, err := sql.Open("postgres", as(t, database, "gateway_worker"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `SELECT FROM email_outbox`); err != nil {
		t.Error(err)
	}
	if _, err := db.ExecContext(t.Context(), `SELECT FROM api_keys`); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("the worker's role can read api_keys: %v", err)
	}
}

// The previous release, which is started again, takes no grants from programs of the newer one.
func TestRun_RolesOfAnOlderRelease(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	if err := run(t.Context(), []string{"up", "roles"}, only("DATABASE_URL", database), io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	execute(t, t.Context(), database, `INSERT INTO goose_db_version (version_id, is_applied) SELECT max(version_id) + 1, true FROM goose_db_version`)
	execute(t, t.Context(), database, `GRANT SELECT ON api_keys TO gateway_worker`)
	var warnings bytes.Buffer
	if err := run(t.Context(), []string{"up", "roles"}, only("DATABASE_URL", database), io.Discard, &warnings); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(warnings.String(), "migrate: warning: grant roles: the database is newer than this release: it is at migration") {
		t.Errorf("printed %q", warnings.String())
	}
	execute(t, t.Context(), database, `DO $$ BEGIN ASSERT has_table_privilege('gateway_worker', 'api_keys', 'SELECT'), 'a grant of the newer release was revoked'; END $$`)
}

// The tables' owner, who may create roles, grants beside a table and a function of another role on which it has no
// rights. What the roles should no longer have is revoked, also on columns.
func TestRun_RolesBesideOtherOwners(t *testing.T) {
	t.Parallel()
	owner, other := newRole(t, "CREATEROLE"), newRole(t, "")
	database := emptyDatabase(t)
	owned := as(t, database, owner)
	execute(t, t.Context(), database, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I OWNER TO `+owner+`', current_database()); END $$`)
	for _, statement := range []string{
		`CREATE TABLE notes ()`, `ALTER TABLE notes OWNER TO ` + other,
		`CREATE FUNCTION reset() RETURNS void LANGUAGE sql AS ''`, `ALTER FUNCTION reset OWNER TO ` + other, `REVOKE ALL ON FUNCTION reset FROM PUBLIC`,
	} {
		execute(t, t.Context(), database, statement)
	}
	for _, command := range []string{"up", "roles"} {
		if err := run(t.Context(), []string{command}, only("DATABASE_URL", owned), &bytes.Buffer{}, io.Discard); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
	}
	for _, grant := range []string{
		`GRANT SELECT ON api_keys TO gateway_worker`, `GRANT UPDATE (name) ON api_keys TO gateway_worker`,
		`GRANT EXECUTE ON FUNCTION email_gateway_schedule(uuid, uuid, timestamptz) TO gateway_worker`,
	} {
		execute(t, t.Context(), owned, grant)
	}
	if err := run(t.Context(), []string{"roles"}, only("DATABASE_URL", owned), &bytes.Buffer{}, io.Discard); err != nil {
		t.Fatal(err)
	}
	execute(t, t.Context(), database, `DO $$ BEGIN
		ASSERT has_table_privilege('gateway_worker', 'email_outbox', 'SELECT'), 'the worker cannot read emails';
		ASSERT NOT has_any_column_privilege('gateway_worker', 'api_keys', 'SELECT, UPDATE'), 'the worker has rights on keys';
		ASSERT NOT has_function_privilege('gateway_worker', 'email_gateway_schedule(uuid, uuid, timestamptz)', 'EXECUTE'), 'the worker may schedule';
	END $$`)
}

// newRole creates a role that may log in, with the attributes. Databases that it owns are created after it, so that they
// are dropped before it.
func newRole(t *testing.T, attributes string) string {
	t.Helper()
	admin, name := os.Getenv("DATABASE_URL"), "test_migrate_"+strings.ToLower(rand.Text())
	execute(t, t.Context(), admin, "CREATE ROLE "+name+" LOGIN "+attributes)
	t.Cleanup(func() { execute(t, context.Background(), admin, "DROP ROLE "+name) })
	return name
}

// as returns the same database for a role.
func as(t *testing.T, database, role string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}
