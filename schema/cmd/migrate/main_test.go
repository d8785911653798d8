package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestRun_UpStatusDown(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	tests := []struct{ command, want string }{
		{"status", `^(pending  0\d{4}_\w+\.sql\n)+$`},
		{"up", `^(applied  0\d{4}_\w+\.sql\n)+$`},
		{"up", `^(applied  0\d{4}_\w+\.sql\n)+$`}, // nothing left to do
		{"down", `^(applied  .*\n)*pending  0\d{4}_\w+\.sql\n$`},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		if err := run(t.Context(), []string{tt.command}, database, &out); err != nil {
			t.Fatalf("%s: %v", tt.command, err)
		}
		if !regexp.MustCompile(tt.want).MatchString(out.String()) {
			t.Errorf("%s printed\n%swant %s", tt.command, out.String(), tt.want)
		}
	}
}

// Roles can be granted, again, and taken for a database that has them already.
func TestRun_Roles(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	for _, command := range []string{"up", "roles", "roles"} {
		if err := run(t.Context(), []string{command}, database, &bytes.Buffer{}); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
	}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User("gateway_worker")
	db, err := sql.Open("postgres", u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `SELECT FROM email_outbox`); err != nil {
		t.Error(err)
	}
	if _, err := db.ExecContext(t.Context(), `SELECT FROM api_keys`); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("the worker reads keys: %v", err)
	}
}

func TestRun_Refuses(t *testing.T) {
	t.Parallel()
	const nobody = "postgres://u:secret@127.0.0.1:1/x?sslmode=disable"
	tests := []struct {
		name, url string
		args      []string
		want      string
	}{
		{"no command", nobody, nil, "usage: migrate up|down|status|roles"},
		{"two commands", nobody, []string{"up", "down"}, "usage: migrate up|down|status|roles"},
		{"unknown command", nobody, []string{"sideways"}, `unknown command "sideways": up, down, status or roles`},
		{"no database", "", []string{"up"}, "DATABASE_URL is not set"},
		{"nobody there", nobody, []string{"up"}, "connection refused"},
		{"a password that breaks the URL", "postgres://u:secret/x@127.0.0.1:1/x", []string{"up"}, "percent-encoded"},
		{"no URL", "u:secret", []string{"up"}, "DATABASE_URL must be postgres://"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := run(t.Context(), tt.args, tt.url, &out)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			if strings.Contains(err.Error(), "secret") || out.Len() > 0 {
				t.Errorf("it says too much: %v, %s", err, out.String())
			}
		})
	}
}

func emptyDatabase(t *testing.T) string {
	t.Helper()
	admin := os.Getenv("DATABASE_URL")
	if admin == "" {
		t.Fatal("DATABASE_URL is not set: run the tests through ./scripts/test.sh")
	}
	name := "test_migrate_" + strings.ToLower(rand.Text())
	execute(t, t.Context(), admin, "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(t, context.Background(), admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	u, err := url.Parse(admin)
	if err != nil {
		t.Fatalf("read DATABASE_URL: %v", err)
	}
	u.Path = "/" + name
	return u.String()
}

func execute(t *testing.T, ctx context.Context, database, statement string) {
	t.Helper()
	db, err := sql.Open("postgres", database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, statement); err != nil {
		t.Errorf("%s: %v", statement, err)
	}
}
