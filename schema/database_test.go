package schema_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/lib/pq"

	"email-gateway/schema"
)

// emptyDatabase creates a database without tables, which is dropped after the test. The test kit of
// shared/store cannot be used here: it depends on this package.
func emptyDatabase(t *testing.T) *sql.DB {
	t.Helper()
	return newDatabase(t, "")
}

// newDatabase is emptyDatabase with options of CREATE DATABASE.
func newDatabase(t *testing.T, options string) *sql.DB {
	t.Helper()
	admin := os.Getenv("DATABASE_URL")
	if admin == "" {
		t.Fatal("DATABASE_URL is not set: run the tests through ./scripts/test.sh")
	}
	name := "test_schema_" + strings.ToLower(rand.Text())
	execute(t, t.Context(), admin, "CREATE DATABASE "+name+" "+options)
	t.Cleanup(func() { execute(t, context.Background(), admin, "DROP DATABASE "+name+" WITH (FORCE)") })

	db, err := sql.Open("postgres", databaseURL(t, name))
	if err != nil {
		t.Fatalf("open database: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// databaseURL returns the URL of a database of the tests' server.
func databaseURL(t *testing.T, name string) string {
	t.Helper()
	u, err := url.Parse(os.Getenv("DATABASE_URL"))
	if err != nil {
		t.Fatalf("read DATABASE_URL: %v", err)
	}
	u.Path = "/" + name
	return u.String()
}

// migratedDatabase returns a database with all tables and no rows.
func migratedDatabase(t *testing.T) *sql.DB {
	t.Helper()
	db := emptyDatabase(t)
	if err := schema.Up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return db
}

func execute(t *testing.T, ctx context.Context, databaseURL, statement string) {
	t.Helper()
	db, err := sql.Open("postgres", databaseURL)
	if err != nil {
		t.Fatalf("open %s: %v", statement, err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, statement); err != nil {
		t.Errorf("%s: %v", statement, err)
	}
}

// refusedBy returns the constraint in an error of Postgres, or the column of a missing value; ""
// without an error.
func refusedBy(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var refused *pq.Error
	if !errors.As(err, &refused) {
		t.Fatalf("not a constraint error of Postgres: %v", err)
	}
	if refused.Constraint != "" {
		return refused.Constraint
	}
	return refused.Column
}
