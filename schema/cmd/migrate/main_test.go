package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"io"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
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
		if err := run(t.Context(), []string{tt.command}, only("DATABASE_URL", database), &out, io.Discard); err != nil {
			t.Fatalf("%s: %v", tt.command, err)
		}
		if !regexp.MustCompile(tt.want).MatchString(out.String()) {
			t.Errorf("%s printed\n%swant %s", tt.command, out.String(), tt.want)
		}
	}
}

// A command that waits for another process says so.
func TestRun_Waits(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	if err := run(t.Context(), []string{"up"}, only("DATABASE_URL", database), io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("postgres", database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	other, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback() }()
	if _, err := other.ExecContext(t.Context(), `LOCK TABLE goose_migration_lock IN SHARE UPDATE EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var warnings bytes.Buffer
	err = run(ctx, []string{"roles"}, only("DATABASE_URL", database), io.Discard, &warnings)
	if want := "migrate: warning: another process migrates this database: waiting until it has ended\n"; !errors.Is(err, context.DeadlineExceeded) || warnings.String() != want {
		t.Errorf("%v, printed %q, want %q", err, warnings.String(), want)
	}
}

// only returns an environment with one variable.
func only(name, value string) func(string) string {
	return func(variable string) string {
		if variable == name {
			return value
		}
		return ""
	}
}

// Each password that docker-compose.yml gives this program is refused before it connects, in
// production only.
func TestRun_PublicPasswords(t *testing.T) {
	t.Parallel()
	compose, err := os.ReadFile("../../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	const unreachable = "127.0.0.1:1/x?sslmode=disable"
	published := []map[string]string{
		{"DATABASE_URL": "postgres://u:gateway@" + unreachable},
		{"DATABASE_URL": "postgres://" + unreachable + "&user=u&password=gateway"},
	}
	for _, found := range regexp.MustCompile(`(?m)^\s+(PGPASSWORD|GATEWAY_\w+_PASSWORD): \$\{\w+:-(.+)\}$`).FindAllStringSubmatch(string(compose), -1) {
		published = append(published, map[string]string{"DATABASE_URL": "postgres://u@" + unreachable, found[1]: found[2]})
	}
	if len(published) < 8 {
		t.Fatalf("compose has passwords in %d variables only", len(published)-2)
	}
	published = append(published, map[string]string{"DATABASE_URL": "postgres://u:s3cret@" + unreachable, "PGPASSWORD": "s3cret"})
	for i, env := range published {
		for environment, want := range map[string]string{"production": "is published", "Production ": "is published", "staging": "connection refused", "": "connection refused"} {
			if i == len(published)-1 { // own passwords
				want = "connection refused"
			}
			getenv := func(name string) string {
				if name == "ENVIRONMENT" {
					return environment
				}
				return env[name]
			}
			err := run(t.Context(), []string{"up", "roles"}, getenv, &bytes.Buffer{}, io.Discard)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q, %v: %v, want %q", environment, env, err, want)
			}
		}
	}
}

func TestRun_Refuses(t *testing.T) {
	t.Parallel()
	const unreachable = "postgres://u:secret@127.0.0.1:1/x?sslmode=disable"
	tests := []struct {
		name, url string
		args      []string
		want      string
	}{
		{"no command", unreachable, nil, "usage: migrate up|down|status|roles"},
		{"unknown command", unreachable, []string{"sideways"}, `unknown command "sideways"; usage: migrate up|down|status|roles`},
		{"unknown second command", unreachable, []string{"up", "sideways"}, `unknown command "sideways"`},
		{"no database", "", []string{"up"}, "DATABASE_URL is not set"},
		{"unreachable server", unreachable, []string{"up"}, "connection refused"},
		{"a password that breaks the URL", "postgres://u:secret/x@127.0.0.1:1/x", []string{"up"}, "percent-encoded"},
		{"no URL", "u:secret", []string{"up"}, "DATABASE_URL must be postgres://"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := run(t.Context(), tt.args, only("DATABASE_URL", tt.url), &out, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			if strings.Contains(err.Error(), "secret") || out.Len() > 0 {
				t.Errorf("the password is in the output: %v, %s", err, out.String())
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
