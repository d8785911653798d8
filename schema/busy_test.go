package schema_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"email-gateway/schema"
)

// Both migrations alter the table mailings. The second has no transaction, and sets
// lock_timeout for its session.
const (
	lockingVersion = 22
	settingVersion = 23
)

// A migration that cannot lock its table gives up and is run again.
func TestUp_BusyTable(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	other := holdMailings(t, db, lockingVersion)
	ended := make(chan error, 1)
	go func() { ended <- schema.Up(t.Context(), db) }()
	awaitGivenUp(t, db, "mailings")
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A migration that failed to get its lock leaves no session with its lock_timeout.
func TestUp_BusyTableSettings(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	holdMailings(t, db, settingVersion)
	db.SetMaxIdleConns(10) // so that the pool keeps every session of the migration
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- schema.Up(ctx, db) }()
	awaitGivenUp(t, db, "mailings")
	cancel()
	if err := <-ended; err == nil {
		t.Error("the migration was applied")
	}
	for range 5 {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() //nolint:errcheck // only its settings were read
		var timeout string
		if err := conn.QueryRowContext(t.Context(), `SHOW lock_timeout`).Scan(&timeout); err != nil {
			t.Fatal(err)
		}
		if timeout != "0" {
			t.Errorf("lock_timeout of a session is %s, want 0", timeout)
		}
	}
}

// holdMailings reverts the migrations from a version on, and locks the table mailings.
func holdMailings(t *testing.T, db *sql.DB, version int64) *sql.Tx {
	t.Helper()
	newest, err := schema.Newest()
	if err != nil {
		t.Fatal(err)
	}
	for range newest - version + 1 {
		if err := schema.Down(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	other, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Rollback() })
	if _, err := other.ExecContext(t.Context(), `LOCK TABLE mailings IN ACCESS SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	return other
}

// awaitGivenUp waits until a migration has waited for a lock of the table and given up.
func awaitGivenUp(t *testing.T, db *sql.DB, table string) {
	t.Helper()
	awaitWaiter(t, db, table, true)
	awaitWaiter(t, db, table, false)
}

// awaitWaiter waits until a session waits for a lock of the table, or none.
func awaitWaiter(t *testing.T, db *sql.DB, table string, want bool) {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	for {
		var waits bool
		err := db.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE relation = $1::regclass AND NOT granted)`, table).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
		if waits == want {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatalf("a session waits for %s: %t, want %t", table, waits, want)
		}
	}
}
