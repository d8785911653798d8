package schema_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"email-gateway/schema"
)

// retentionVersion is the migration that partitions email_logs and email_events.
const retentionVersion = 8

// beforeRetention returns a database without that migration.
func beforeRetention(t *testing.T) *sql.DB {
	t.Helper()
	db := migratedDatabase(t)
	for status(t, db)[retentionVersion-1].Applied {
		if err := schema.Down(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

// fill writes the emails, each with a log and an event.
func fill(t *testing.T, db *sql.DB, ids ...string) {
	t.Helper()
	for _, id := range ids {
		log, event := legal()["email_logs"], legal()["email_events"]
		log["outbox_id"], event["email_log_id"] = id, id
		for table, r := range map[string]row{"email_logs": log, "email_events": event} {
			if err := insert(t, db, table, r); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Existing rows stay in their table, which becomes a partition. Existing grants stay too.
func TestRetention_KeepsExistingRows(t *testing.T) {
	t.Parallel()
	const (
		old  = "'01890000-0000-7000-8000-000000000001'" // of the year 2023
		odd  = "'f1890000-0000-4000-8000-000000000001'" // no current UUIDv7
		fine = `((lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0')) || '70008000000000000001')::uuid`
	)
	for name, tt := range map[string]struct {
		ids        []string
		partitions []string // that hold rows, without the month
	}{
		"usual":      {[]string{old, fine}, []string{"email_events_until_", "email_logs_until_"}},
		"and an odd": {[]string{old, fine, odd}, []string{"email_events_default", "email_events_until_", "email_logs_default", "email_logs_until_"}},
		"none":       {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := beforeRetention(t)
			run(t, db, `GRANT SELECT, INSERT ON email_logs TO pg_monitor`) // a role that every server has
			fill(t, db, tt.ids...)
			held := `SELECT 'log ' || outbox_id || subject FROM email_logs UNION ALL SELECT 'event ' || email_log_id || type FROM email_events ORDER BY 1`
			before, indexes := query(t, db, held), query(t, db, indexesSQL)
			if err := schema.Up(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			if after := query(t, db, held); !slices.Equal(before, after) {
				t.Errorf("before %v, after %v", before, after)
			}
			want := append(slices.Clone(indexes), "email_logs_problem") // 00036_delivery_state.sql
			for place := range 5 {                                      // 00015_log_tags.sql
				want = append(want, fmt.Sprint("email_logs_tag", place+1))
			}
			slices.Sort(want)
			if after := query(t, db, indexesSQL); !slices.Equal(want, after) {
				t.Errorf("indexes %v, after %v", want, after)
			}
			var found []string
			for _, name := range query(t, db, `
SELECT DISTINCT tableoid::regclass::text FROM email_logs UNION SELECT DISTINCT tableoid::regclass::text FROM email_events ORDER BY 1`) {
				found = append(found, strings.TrimRight(name, "_0123456789")+strings.Repeat("_", strings.Count(name, "until")))
			}
			if !slices.Equal(found, tt.partitions) {
				t.Errorf("rows in %v, want %v", found, tt.partitions)
			}
			rights := query(t, db, `SELECT privilege_type FROM information_schema.role_table_grants WHERE grantee = 'pg_monitor' AND table_name = 'email_logs' ORDER BY 1`)
			if !slices.Equal(rights, []string{"INSERT", "SELECT"}) {
				t.Errorf("rights: %v", rights)
			}
			fill(t, db, `'01890000-0000-7000-8000-000000000002'`, `first_id_at(now() + interval '80 days')`) // old and new rows are still accepted

			for status(t, db)[retentionVersion-1].Applied {
				if err := schema.Down(t.Context(), db); err != nil {
					t.Fatal(err)
				}
			}
			if after := query(t, db, held); len(after) != len(before)+4 {
				t.Errorf("after Down %v", after)
			}
			if after := query(t, db, indexesSQL); !slices.Equal(indexes, after) {
				t.Errorf("indexes before %v, after Down %v", indexes, after)
			}
		})
	}
}

// While a backup reads the log, the migration does not block other sessions by waiting for its
// lock, and succeeds after the backup.
func TestRetention_GivesUpBehindABackup(t *testing.T) {
	t.Parallel()
	db := beforeRetention(t)
	fill(t, db, "'01890000-0000-7000-8000-000000000001'")
	backup, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = backup.Rollback() }()
	if _, err := backup.ExecContext(t.Context(), `SELECT FROM email_logs`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- schema.Up(ctx, db) }()
	awaitGivenUp(t, db, "email_logs")
	cancel() // it would be retried
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "lock timeout") {
		t.Errorf("during a backup: %v", err)
	}
	if err := backup.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := schema.Up(t.Context(), db); err != nil {
		t.Errorf("after the backup: %v", err)
	}
	if n := query(t, db, `SELECT tableoid::regclass::text FROM email_logs`); len(n) != 1 || !strings.HasPrefix(n[0], "email_logs_until_") {
		t.Errorf("rows in %v", n)
	}
}

const indexesSQL = `SELECT indexname FROM pg_indexes WHERE tablename IN ('email_logs', 'email_events') ORDER BY 1`

func run(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
