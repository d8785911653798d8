package store_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/schema"
	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// A connection has the settings on which statements depend, whatever the database or the URL says.
func TestOpen_RequiredSettings(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	run(t, d, `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET search_path = other', current_database());
		EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = ''repeatable read''', current_database());
		EXECUTE format('ALTER DATABASE %I SET "TimeZone" = ''America/Sao_Paulo''', current_database());
	END $$`)
	for _, parameters := range []string{"", "&default_transaction_isolation=serializable&search_path=other&TimeZone=Europe/Berlin", "&options=-csearch_path%3Dother", "&Default_Transaction_Isolation=serializable&SEARCH_PATH=other&timezone=Europe/Berlin"} {
		s := open(t, d.URL+parameters, store.Options{})
		var got string
		err := s.DB().InTx(t.Context(), func(tx *sqlx.Tx) error {
			return tx.GetContext(t.Context(), &got, `SELECT current_setting('transaction_isolation') || ', ' || current_setting('search_path') || ', ' || current_setting('TimeZone')`)
		})
		if want := "read committed, public, UTC"; err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", parameters, got, err, want)
		}
	}
}

// A role with CREATE on the database can create a schema with the name of a program's role. The program uses the
// gateway's tables nevertheless, also behind a pooler, where only the role has settings.
func TestOpen_SchemaOfTheRole(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	if err := schema.Roles(t.Context(), d.SQL); err != nil {
		t.Fatal(err)
	}
	creator := newLogin(t, d)
	run(t, d, `DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO `+creator+`', current_database()); END $$`)
	stranger := open(t, loginURL(t, d, creator), store.Options{})
	for _, statement := range []string{
		`CREATE SCHEMA gateway_api`, `CREATE TABLE gateway_api.companies ()`,
		`GRANT USAGE ON SCHEMA gateway_api TO PUBLIC`, `GRANT SELECT ON gateway_api.companies TO PUBLIC`,
	} {
		if _, err := stranger.DB().ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	for _, pooled := range []bool{false, true} {
		s := open(t, loginURL(t, d, "gateway_api"), store.Options{Pooled: pooled})
		var ours bool
		if err := s.DB().Get(t.Context(), &ours, `SELECT 'companies'::regclass = 'public.companies'::regclass`); err != nil || !ours {
			t.Errorf("pooled %t: the gateway's table %t, %v", pooled, ours, err)
		}
	}
}

// A setting on which statements depend is reported if the role has another value, in general or in this database.
func TestServer_Unset(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	role := newLogin(t, d)
	for _, setting := range []string{
		`statement_timeout = '1s'`, `idle_in_transaction_session_timeout = '1s'`, `enable_seqscan = off`, `jit = off`, `client_min_messages = warning`,
		`default_transaction_isolation = 'read committed'`, `search_path = public`, `"TimeZone" = 'UTC'`,
	} {
		run(t, d, `ALTER ROLE `+role+` SET `+setting)
	}
	s := open(t, loginURL(t, d, role), store.Options{})
	unset := func() string {
		t.Helper()
		server, err := s.Server(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(slices.DeleteFunc(server.Unset, func(line string) bool { return !strings.HasPrefix(line, role) }), "; ")
	}
	if got := unset(); got != "" {
		t.Errorf("with all settings: %s", got)
	}
	run(t, d, `ALTER ROLE `+role+` SET search_path = other`)
	run(t, d, `DO $$ BEGIN EXECUTE format('ALTER ROLE `+role+` IN DATABASE %I SET "TimeZone" = ''America/Sao_Paulo''', current_database()); END $$`)
	if got, want := unset(), role+": TimeZone, search_path"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A database whose indexes were built with another version of its collation is reported, and a Turkish one.
func TestServer_Locale(t *testing.T) {
	t.Parallel()
	admin := storetest.New(t)
	for locale, lowersASCII := range map[string]bool{"en": true, "tr": false} {
		name := "locale_" + strings.ReplaceAll(uuid.NewString(), "-", "")
		run(t, admin, `CREATE DATABASE `+name+` ENCODING 'UTF8' TEMPLATE template0 LOCALE 'C.UTF-8' LOCALE_PROVIDER icu ICU_LOCALE '`+locale+`'`)
		t.Cleanup(func() {
			if _, err := admin.SQL.Exec(`DROP DATABASE ` + name + ` WITH (FORCE)`); err != nil {
				t.Error(err)
			}
		})
		u, err := url.Parse(admin.URL)
		if err != nil {
			t.Fatal(err)
		}
		u.Path = "/" + name
		s := open(t, u.String(), store.Options{})
		if server, err := s.Server(t.Context()); err != nil || server.OtherCollation || server.LowersASCII != lowersASCII {
			t.Errorf("%s: %+v, %v", locale, server, err)
		}
		run(t, admin, `UPDATE pg_database SET datcollversion = '0' WHERE datname = '`+name+`'`)
		if server, err := s.Server(t.Context()); err != nil || !server.OtherCollation {
			t.Errorf("%s, another version: %+v, %v", locale, server, err)
		}
	}
}

// newLogin creates a role that may log in, until the test ends.
func newLogin(t *testing.T, d storetest.Database) string {
	t.Helper()
	role := "login_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	run(t, d, `CREATE ROLE `+role+` LOGIN`)
	t.Cleanup(func() {
		for _, end := range []string{`DROP OWNED BY ` + role + ` CASCADE`, `DROP ROLE ` + role} {
			if _, err := d.SQL.Exec(end); err != nil {
				t.Error(err)
			}
		}
	})
	return role
}

// loginURL is the database's URL for another role.
func loginURL(t *testing.T, d storetest.Database, role string) string {
	t.Helper()
	u, err := url.Parse(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}
