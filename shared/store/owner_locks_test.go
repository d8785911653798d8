package store_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"email-gateway/schema"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/storetest"
)

// stranger is a role that may log in and may do what the api's role may do. It goes with
// the test.
func stranger(t *testing.T, d storetest.Database) *sql.DB {
	t.Helper()
	role := "stranger_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	run(t, d, `CREATE ROLE `+role+` LOGIN`)
	t.Cleanup(func() {
		for _, end := range []string{`DROP OWNED BY ` + role, `DROP ROLE ` + role} {
			if _, err := d.SQL.ExecContext(context.Background(), end); err != nil {
				t.Error(err)
			}
		}
	})
	run(t, d, `GRANT gateway_api TO `+role)
	u, err := url.Parse(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	db, err := sql.Open("postgres", u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A role that holds every advisory lock there is to guess, or tries to lock what the
// programs lock, stops neither retention nor mailings nor migrations.
func TestOwnerLocks_Strangers(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	if err := schema.Roles(t.Context(), d.SQL); err != nil {
		t.Fatal(err)
	}
	company := d.Company(t)
	mailingID := d.Mailing(t, company, 3, nil)
	if _, err := d.Store.CancelMailing(t.Context(), company, mailingID); err != nil {
		t.Fatal(err)
	}
	for _, log := range []retention.Log{retention.EmailLogs, retention.EmailEvents} {
		storetest.PastPartition(t, d, log, 24)
	}
	tx, err := stranger(t, d).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, key := range []string{
		`hashtextextended('partitions of email_logs', 0)`, `hashtextextended('partitions of email_events', 0)`,
		`hashtextextended('settle mailing ` + mailingID.String() + `', 0)`, `4097083626` /* goose's */, `5887940537704921958`, `1`,
	} {
		if _, err := tx.ExecContext(t.Context(), `SELECT pg_advisory_lock(`+key+`)`); err != nil {
			t.Fatal(err)
		}
	}
	for _, statement := range []string{
		`SELECT FROM owner_locks FOR UPDATE`, `SELECT FROM owner_locks FOR KEY SHARE`, `SELECT FROM owner_locks`, `LOCK TABLE owner_locks IN ACCESS SHARE MODE`,
		`SELECT hold_settling('` + mailingID.String() + `')`, `SELECT make_log_partition('email_logs', 3)`,
		`LOCK TABLE goose_migration_lock IN ACCESS SHARE MODE`, `LOCK TABLE goose_migration_lock IN SHARE UPDATE EXCLUSIVE MODE`,
		`LOCK TABLE goose_db_version IN ROW EXCLUSIVE MODE`, `DELETE FROM goose_db_version`,
	} {
		if _, err := tx.ExecContext(t.Context(), `SAVEPOINT before`); err != nil {
			t.Fatal(err)
		}
		_, err := tx.ExecContext(t.Context(), statement)
		var refused *pq.Error
		if !errors.As(err, &refused) || refused.Code != pqerror.InsufficientPrivilege {
			t.Errorf("%s: %v", statement, err)
		}
		if _, err := tx.ExecContext(t.Context(), `ROLLBACK TO before`); err != nil {
			t.Fatal(err)
		}
	}

	for n := range 3 { // two are missing
		if name, err := retention.New(d.Store.DB()).MakeLogPartition(t.Context(), retention.EmailLogs, 3); err != nil || (name == "") != (n == 2) {
			t.Errorf("make: %q, %v", name, err)
		}
	}
	for _, log := range []retention.Log{retention.EmailLogs, retention.EmailEvents} {
		if dropped, err := retention.New(d.Store.DB()).DropLogPartition(t.Context(), log, 365*24*time.Hour); err != nil || !dropped.Dropped {
			t.Errorf("drop: %+v, %v", dropped, err)
		}
	}
	settled, err := d.Store.ApplyEntryAction(t.Context(), mailingID, 10, nil)
	if err != nil || settled.Kind != mailing.ActionCancel || settled.Cancelled != 3 {
		t.Errorf("settle: %+v, %v", settled, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := schema.Down(ctx, d.SQL); err != nil {
		t.Errorf("migrate down: %v", err)
	}
	if err := schema.Up(ctx, d.SQL); err != nil {
		t.Errorf("migrate up: %v", err)
	}
}

// The lock of one mailing does not block the others.
func TestOwnerLocks_OneMailingAtATime(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	held, other := uuid.MustParse("01990000-0000-7000-8000-000000000001"), uuid.MustParse("01990000-0000-7000-8000-0000000000ff")
	var ours bool
	if err := tx.QueryRowContext(t.Context(), `SELECT hold_settling($1)`, held).Scan(&ours); err != nil || !ours {
		t.Fatalf("%v, %v", ours, err)
	}
	if ask[bool](t, d, `SELECT hold_settling($1)`, held) || !ask[bool](t, d, `SELECT hold_settling($1)`, other) {
		t.Error("hold_settling locks another mailing than the given one")
	}
}

// A log without a partition for the current or next month is reported.
func TestMissingLogPartitions(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	months := func() map[retention.Log]int {
		missing, err := retention.New(d.Store.DB()).MissingLogPartitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found := map[retention.Log]int{}
		for _, m := range missing {
			found[m.Log] = m.Months
		}
		return found
	}
	if m := months(); len(m) != 2 || m[retention.EmailLogs] != 0 || m[retention.EmailEvents] != 0 {
		t.Errorf("of a new database: %v", m)
	}
	run(t, d, `DROP TABLE email_events_`+storetest.MonthsFromNow(1).Format("2006_01"))
	if m := months(); m[retention.EmailLogs] != 0 || m[retention.EmailEvents] != 1 {
		t.Errorf("without the next month: %v", m)
	}
	run(t, d, `DROP TABLE email_events_`+storetest.MonthsFromNow(0).Format("2006_01"))
	if m := months(); m[retention.EmailEvents] != 2 {
		t.Errorf("without this one: %v", m)
	}
}
