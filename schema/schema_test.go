package schema_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"email-gateway/schema"
)

// Every migration can be reverted without leftovers, and can be applied again with the same result.
func TestUpDownUp(t *testing.T) {
	t.Parallel()
	db := emptyDatabase(t)
	if err := schema.Up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	first := catalog(t, db)
	if len(first) == 0 {
		t.Fatal("Up created nothing")
	}
	for range files(t) {
		if err := schema.Down(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	if left := catalog(t, db); len(left) > 0 {
		t.Errorf("Down has left:\n%s", strings.Join(left, "\n"))
	}
	if err := schema.Up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if second := catalog(t, db); !slices.Equal(first, second) {
		t.Errorf("the second Up created\n%s\nand the first\n%s", strings.Join(second, "\n"), strings.Join(first, "\n"))
	}
}

// A database that does not store UTF-8, or whose lower() is not that of ASCII, is refused before the first migration.
func TestUp_Locale(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]string{
		"ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'":                     "the encoding of the database is SQL_ASCII, and must be UTF8",
		"ENCODING 'UTF8' TEMPLATE template0 LOCALE 'C.UTF-8' LOCALE_PROVIDER icu ICU_LOCALE 'tr'": "the locale of the database lowers ASCII letters to others",
	} {
		db := newDatabase(t, options)
		if err := schema.Up(t.Context(), db); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Up = %v, want an error with %q", options, err, want)
		}
		if found := catalog(t, db); len(found) > 0 {
			t.Errorf("%s: Up created %v", options, found)
		}
	}
}

// Concurrent migrations: one works, the others have nothing to do.
func TestUp_AtTheSameTime(t *testing.T) {
	t.Parallel()
	db := emptyDatabase(t)
	const callers = 4
	results := make(chan error, callers)
	begin := make(chan struct{})
	for range callers {
		go func() {
			<-begin
			results <- schema.Up(t.Context(), db)
		}()
	}
	close(begin)
	for range callers {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	for _, step := range status(t, db) {
		if !step.Applied {
			t.Errorf("%s is missing", step.File)
		}
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	db := emptyDatabase(t)
	names := files(t)
	expect := func(applied int) {
		t.Helper()
		steps := status(t, db)
		if len(steps) != len(names) {
			t.Fatalf("%d steps, want %d", len(steps), len(names))
		}
		for i, step := range steps {
			want := schema.Step{Version: int64(i + 1), File: names[i], Applied: i < applied}
			if step != want {
				t.Errorf("step %d: got %+v, want %+v", i+1, step, want)
			}
		}
	}
	expect(0)
	if err := schema.Up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	expect(len(names))
	if newest, err := schema.Newest(); err != nil || newest != status(t, db)[len(names)-1].Version {
		t.Errorf("the newest version is %d, %v", newest, err)
	}
	if err := schema.Down(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	expect(len(names) - 1)
}

func TestUp_NoDatabase(t *testing.T) {
	t.Parallel()
	db := emptyDatabase(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := schema.Up(ctx, db); err == nil {
		t.Error("Up: no error")
	}
	if err := schema.Down(ctx, db); err == nil {
		t.Error("Down: no error")
	}
	if _, err := schema.Status(ctx, db); err == nil {
		t.Error("Status: no error")
	}
}

var fileName = regexp.MustCompile(`^(\d{5})_[a-z]+(_[a-z]+)*\.sql$`)

// Two branches that each add a migration of the same number fail here when they are merged.
func TestMigrations_AreNumberedWithoutGaps(t *testing.T) {
	t.Parallel()
	for i, name := range files(t) {
		match := fileName.FindStringSubmatch(name)
		if match == nil || match[1] != fmt.Sprintf("%05d", i+1) {
			t.Errorf("file %d is %s, want %05d_what_it_brings.sql", i+1, name, i+1)
		}
		text, err := os.ReadFile("migrations/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range []string{"\n-- +goose Up\n", "\n-- +goose Down\n"} {
			if strings.Count(string(text), section) != 1 {
				t.Errorf("%s: one %q expected", name, strings.TrimSpace(section))
			}
		}
	}
}

func TestFingerprint_IsStable(t *testing.T) {
	t.Parallel()
	first, err := schema.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	second, err := schema.Fingerprint()
	if err != nil || first != second || !regexp.MustCompile(`^[0-9a-f]{12}$`).MatchString(first) {
		t.Errorf("got %q, then %q, %v", first, second, err)
	}
}

func files(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("migrations")
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

func status(t *testing.T, db *sql.DB) []schema.Step {
	t.Helper()
	steps, err := schema.Status(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

// Turning off standard_conforming_strings in a session must not change the meaning of literals in
// functions.
func TestFunctions_StandardConformingStrings(t *testing.T) {
	t.Parallel()
	db := emptyDatabase(t)
	if err := schema.Up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	for _, routine := range query(t, db, `
SELECT p.oid::regprocedure::text FROM pg_proc p
WHERE p.pronamespace = 'public'::regnamespace AND p.prokind IN ('f', 'p') AND p.prosqlbody IS NULL
  AND NOT coalesce('standard_conforming_strings=on' = ANY (p.proconfig), false)
ORDER BY 1`) {
		t.Errorf("%s lacks SET standard_conforming_strings = on", routine)
	}
}

// catalog lists the contents of the database except for the migrations' own table: columns,
// constraints, indexes, storage parameters, functions and types.
func catalog(t *testing.T, db *sql.DB) []string {
	t.Helper()
	return query(t, db, `
SELECT format('column %s.%s %s %s %s %s', table_name, column_name, data_type, is_nullable, column_default, is_identity)
FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT LIKE 'goose%'
UNION ALL
SELECT format('constraint %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text NOT LIKE 'goose%'
UNION ALL
SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename NOT LIKE 'goose%'
UNION ALL
SELECT format('relation %s %s %s', relname, relkind, reloptions)
FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE 'goose%'
UNION ALL
SELECT format('function %s', oid::regprocedure) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL
SELECT format('type %s', typname) FROM pg_type WHERE typnamespace = 'public'::regnamespace AND typname NOT LIKE '%goose%'
ORDER BY 1`)
}

// query returns the rows of a statement with one text column.
func query(t *testing.T, db *sql.DB, statement string) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), statement)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
