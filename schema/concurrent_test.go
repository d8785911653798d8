package schema_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"email-gateway/schema"
)

// Concurrent calls grant the roles, one after the other.
func TestRoles_AtTheSameTime(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	const callers, rounds = 4, 5
	for range rounds {
		results := make(chan error, callers)
		for range callers {
			go func() { results <- schema.Roles(t.Context(), db) }()
		}
		for range callers {
			if err := <-results; err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Concurrent calls set the password of one role, one after the other.
func TestSetPasswords_AtTheSameTime(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	role, admin := "test_schema_"+strings.ToLower(rand.Text()), os.Getenv("DATABASE_URL")
	execute(t, t.Context(), admin, "CREATE ROLE "+role)
	t.Cleanup(func() { execute(t, context.Background(), admin, "DROP ROLE "+role) })
	const callers, rounds = 4, 10
	for range rounds {
		results := make(chan error, callers)
		for range callers {
			go func() { results <- schema.SetPasswords(t.Context(), db, map[string]string{role: rand.Text()}) }()
		}
		for range callers {
			if err := <-results; err != nil {
				t.Fatal(err)
			}
		}
	}
}

// No statement contains a password, because Postgres may log statements.
func TestSetPasswords_ClearText(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	role, admin := "test_schema_"+strings.ToLower(rand.Text()), os.Getenv("DATABASE_URL")
	execute(t, t.Context(), admin, "CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() { execute(t, context.Background(), admin, "DROP ROLE "+role) })
	for _, password := range []string{rand.Text(), "it's \\ long " + strings.Repeat("x", 200), "senha-é-ª"} {
		if err := schema.SetPasswords(t.Context(), db, map[string]string{role: password}); err != nil {
			t.Fatal(err)
		}
		var statements int
		err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND strpos(query, $1) > 0`, password[len(password)-6:]).Scan(&statements)
		if err != nil || statements > 0 {
			t.Errorf("%d statements contain the password (%v)", statements, err)
		}
		var stored string
		if err := db.QueryRowContext(t.Context(), "SELECT rolpassword FROM pg_authid WHERE rolname = $1", role).Scan(&stored); err != nil || !strings.HasPrefix(stored, "SCRAM-SHA-256$4096:") {
			t.Errorf("stored: %q, %v", stored, err)
		}
	}
}

// The same password has the same verifier, which other passwords, roles and installations do not have: a PgBouncer's
// copy stays valid.
func TestSetPasswords_StableVerifier(t *testing.T) {
	t.Parallel()
	admin := os.Getenv("DATABASE_URL")
	var roles []string
	for range 2 {
		role := "test_schema_" + strings.ToLower(rand.Text())
		execute(t, t.Context(), admin, "CREATE ROLE "+role+" LOGIN")
		t.Cleanup(func() { execute(t, context.Background(), admin, "DROP ROLE "+role) })
		roles = append(roles, role)
	}
	installation, another := migratedDatabase(t), migratedDatabase(t)
	verifier := func(db *sql.DB, role, password string) string {
		t.Helper()
		if err := schema.SetPasswords(t.Context(), db, map[string]string{role: password}); err != nil {
			t.Fatal(err)
		}
		return query(t, db, "SELECT rolpassword FROM pg_authid WHERE rolname = '"+role+"'")[0]
	}
	first := verifier(installation, roles[0], "secret")
	for name, other := range map[string]string{
		"password": verifier(installation, roles[0], "changed"), "role": verifier(installation, roles[1], "secret"), "installation": verifier(another, roles[0], "secret"),
	} {
		if other == first {
			t.Errorf("another %s has the same verifier", name)
		}
	}
	if again := verifier(installation, roles[0], "secret"); again != first {
		t.Errorf("the verifier was %s and is %s", first, again)
	}
}

// The error of a refused verifier says how to set the password.
func TestSetPasswords_Refused(t *testing.T) {
	t.Parallel()
	err := schema.SetPasswords(t.Context(), migratedDatabase(t), map[string]string{"test_missing": "secret"})
	if err == nil || !strings.Contains(err.Error(), "leave TEST_MISSING_PASSWORD unset") {
		t.Errorf("%v", err)
	}
}

// A verifier, such as one of another installation, is stored as it is, as Postgres itself does.
func TestSetPasswords_Verifier(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	role, admin := "test_schema_"+strings.ToLower(rand.Text()), os.Getenv("DATABASE_URL")
	execute(t, t.Context(), admin, "CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() { execute(t, context.Background(), admin, "DROP ROLE "+role) })
	const given = "SCRAM-SHA-256$4096:c2FsdHNhbHRzYWx0c2FsdA==$b4BDBIWbNH+Y1hlC5A/B5KvGpkMTmOQzBuO6Bl0YPr4=:q8Xl6K7gTmKyYx0YQkIhHxwTzSjUoYJ3GqCzBkZb0N8="
	if err := schema.SetPasswords(t.Context(), db, map[string]string{role: given}); err != nil {
		t.Fatal(err)
	}
	var stored string
	if err := db.QueryRowContext(t.Context(), "SELECT rolpassword FROM pg_authid WHERE rolname = $1", role).Scan(&stored); err != nil || stored != given {
		t.Errorf("stored: %q, %v", stored, err)
	}
}

// Migrations and grants wait while another process migrates, and continue when it has ended.
func TestLock_Waits(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(ctx context.Context, db *sql.DB) error{"up": schema.Up, "roles": schema.Roles} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := migratedDatabase(t)
			if name == "up" {
				if err := schema.Down(t.Context(), db); err != nil {
					t.Fatal(err)
				}
			}
			other, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = other.Rollback() }()
			if _, err := other.ExecContext(t.Context(), `LOCK TABLE goose_migration_lock IN SHARE UPDATE EXCLUSIVE MODE`); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // several attempts
			defer cancel()
			if err := do(ctx, db); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("while another process migrates: %v", err)
			}
			ended := make(chan error, 1)
			go func() { ended <- do(t.Context(), db) }()
			if err := other.Rollback(); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Errorf("after it: %v", err)
			}
		})
	}
}
