package main

import (
	"io"
	"testing"

	"email-gateway/schema/pgurl"
)

// A limit of time that an administrator has set for the database does not end a migration, unless the URL has it.
func TestConnect_Unlimited(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	execute(t, t.Context(), database, `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET statement_timeout = ''40min''', current_database());
		EXECUTE format('ALTER DATABASE %I SET lock_timeout = ''40min''', current_database());
	END $$`)
	for parameters, want := range map[string]string{"": "0 0", "lock_timeout=5000": "0 5s", "options=-cstatement_timeout%3D5000": "5s 0"} {
		u, err := pgurl.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		u.RawQuery += "&" + parameters
		db, err := connect(u, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var got string
		if err := db.QueryRowContext(t.Context(), `SELECT current_setting('statement_timeout') || ' ' || current_setting('lock_timeout')`).Scan(&got); err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", parameters, got, err, want)
		}
	}
}

// The tables are created in the schema public, whatever the database prefers.
func TestConnect_Settings(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	execute(t, t.Context(), database, `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET search_path = other', current_database());
		EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = ''repeatable read''', current_database());
		EXECUTE format('ALTER DATABASE %I SET "TimeZone" = ''America/Sao_Paulo''', current_database());
	END $$`)
	u, err := pgurl.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	db, err := connect(u, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var got string
	err = db.QueryRowContext(t.Context(), `SELECT current_setting('transaction_isolation') || ', ' || current_setting('search_path') || ', ' || current_setting('TimeZone')`).Scan(&got)
	if want := "read committed, public, UTC"; err != nil || got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}
