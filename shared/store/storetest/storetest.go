// Package storetest creates a database per test: migrated and empty. It is dropped after the test has passed; if the
// test fails, the database is kept and its URL logged. The tests of store, api, worker and scripts use the package; no
// program does.
package storetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"email-gateway/schema"
	"email-gateway/shared/store"
)

// Database is the database of one test.
type Database struct {
	URL   string
	Store *store.Store
	// SQL reads rows and corrupts them on purpose.
	SQL *sql.DB
}

// New clones the template database, which takes some tens of milliseconds, however many migrations there are.
// DATABASE_URL must name a server on which databases may be created; without it the test fails.
func New(tb testing.TB) Database {
	tb.Helper()
	admin := os.Getenv("DATABASE_URL")
	if admin == "" {
		tb.Fatal("DATABASE_URL is not set: run the tests through ./scripts/test.sh")
	}
	return NewOn(tb, admin)
}

// NewOn is New on the server that admin names.
func NewOn(tb testing.TB, admin string) Database {
	tb.Helper()
	template, err := prepareTemplate(admin)
	if err != nil {
		tb.Fatalf("prepare template database: %v", err)
	}
	name := "test_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if err := clone(tb.Context(), admin, template, name); err != nil {
		tb.Fatalf("clone template database: %v", err)
	}
	// schema/roles.sql sets this on the programs' roles, but tests log in as a superuser.
	if err := execute(tb.Context(), admin, "ALTER DATABASE "+name+" SET idle_in_transaction_session_timeout = '5s'"); err != nil {
		tb.Fatalf("set up test database: %v", err)
	}
	d := Database{URL: withDatabase(admin, name)}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("database kept: %s", d.URL)
			return
		}
		if err := discard(admin, name); err != nil {
			tb.Errorf("discard test database: %v", err)
		}
	})
	if d.Store, err = store.Open(tb.Context(), d.URL, store.Options{}); err != nil {
		tb.Fatalf("open test database: %v", err)
	}
	tb.Cleanup(d.Store.Close)
	if d.SQL, err = sql.Open("postgres", withIdle(d.URL)); err != nil {
		tb.Fatalf("open test database: %v", err)
	}
	tb.Cleanup(func() { _ = d.SQL.Close() })
	return d
}

// prepareTemplate creates the migrated database that tests are cloned from, once per process and server. Its name
// contains the fingerprint of the migrations.
var prepareTemplate = func() func(admin string) (string, error) {
	var mu sync.Mutex
	made := map[string]string{}
	return func(admin string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if name, ok := made[admin]; ok {
			return name, nil
		}
		name, err := makeTemplate(context.Background(), admin)
		if err == nil {
			made[admin] = name
		}
		return name, err
	}
}()

func makeTemplate(ctx context.Context, admin string) (string, error) {
	fingerprint, err := schema.Fingerprint()
	if err != nil {
		return "", err
	}
	name := "template_" + fingerprint
	// Several test processes may run this at the same time: one creates the database, the others wait in Up for its
	// migration lock and then find nothing to do.
	if err := execute(ctx, admin, "CREATE DATABASE "+name); err != nil && !exists(err) {
		return "", err
	}
	db, err := sql.Open("postgres", withDatabase(admin, name))
	if err != nil {
		return "", err
	}
	return name, errors.Join(schema.Up(ctx, db), db.Close(), dropDiscarded(ctx, admin))
}

// discarded is the comment that marks databases to be dropped.
const discarded = "discarded"

// discard marks a database and drops it in the background: DROP DATABASE waits for a checkpoint, which takes seconds on
// a busy disk. A later process drops databases that are left when the process exits.
func discard(admin, name string) error {
	err := execute(context.Background(), admin, fmt.Sprintf("COMMENT ON DATABASE %s IS '%s'", name, discarded))
	go func() { _ = drop(admin, name) }()
	return err
}

// drop drops a database and closes connections that the code under test left open.
func drop(admin, name string) error {
	return execute(context.Background(), admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}

// dropDiscarded drops databases that earlier processes left.
func dropDiscarded(ctx context.Context, admin string) error {
	db, err := administration(admin)
	if err != nil {
		return err
	}
	var names []string
	err = db.SelectContext(ctx, &names, `
		SELECT d.datname FROM pg_database d JOIN pg_shdescription c ON c.objoid = d.oid AND c.classoid = 'pg_database'::regclass
		WHERE c.description = $1 AND d.datname LIKE 'test\_%'`, discarded)
	go func() {
		for _, name := range names {
			_ = drop(admin, name)
		}
	}()
	return err
}

// clone copies the template. Postgres refuses the copy while any connection to the template is open, such as that of
// another process that migrates it.
func clone(ctx context.Context, admin, template, name string) error {
	statement := fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s STRATEGY wal_log", name, template)
	deadline := time.Now().Add(3 * time.Minute)
	for {
		err := execute(ctx, admin, statement)
		var refused *pq.Error
		if err == nil || !errors.As(err, &refused) || refused.Code != pqerror.ObjectInUse || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func execute(ctx context.Context, admin, statement string) error {
	db, err := administration(admin)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, statement)
	return err
}

// administration returns the process's connections to a server on which it creates databases. They stay open until the process
// exits: a session takes 10 ms of CPU time to start, and each test needs four statements.
var administration = func() func(admin string) (*sqlx.DB, error) {
	var mu sync.Mutex
	opened := map[string]*sqlx.DB{}
	return func(admin string) (*sqlx.DB, error) {
		mu.Lock()
		defer mu.Unlock()
		if db, ok := opened[admin]; ok {
			return db, nil
		}
		db, err := sqlx.Open("postgres", admin)
		if err == nil {
			db.SetMaxIdleConns(4)
			opened[admin] = db
		}
		return db, err
	}
}()

func exists(err error) bool {
	var refused *pq.Error
	return errors.As(err, &refused) &&
		(refused.Code == pqerror.DuplicateDatabase || refused.Code == pqerror.UniqueViolation)
}

// withIdle removes the timeout of idle transactions, so that the test can hold locks.
func withIdle(databaseURL string) string {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return databaseURL
	}
	q := u.Query()
	q.Set("idle_in_transaction_session_timeout", "0")
	u.RawQuery = q.Encode()
	return u.String()
}

func withDatabase(databaseURL, name string) string {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return databaseURL
	}
	u.Path = "/" + name
	return u.String()
}
