package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// pastPartition makes the partition of the month that lies so many months back.
func pastPartition(t *testing.T, d storetest.Database, log store.Log, back int) (name string) {
	t.Helper()
	name = string(log) + "_" + monthsFromNow(-back).Format("2006_01")
	run(t, d, `CREATE TABLE `+name+` PARTITION OF `+string(log)+` FOR VALUES FROM ('`+
		ask[string](t, d, `SELECT first_id_at($1)`, monthsFromNow(-back))+`') TO ('`+ask[string](t, d, `SELECT first_id_at($1)`, monthsFromNow(1-back))+`')`)
	return name
}

// monthsFromNow is the beginning of that month.
func monthsFromNow(n int) time.Time {
	now := time.Now().UTC()
	return time.Date(now.Year(), now.Month()+time.Month(n), 1, 0, 0, 0, 0, time.UTC)
}

func partitions(t *testing.T, d storetest.Database, log store.Log) int {
	t.Helper()
	return ask[int](t, d, `SELECT count(*) FROM log_partitions WHERE log = $1`, string(log))
}

// made makes what is missing, by several at once, as dispatchers do.
func made(t *testing.T, d storetest.Database, log store.Log, ahead int) (names map[string]bool) {
	t.Helper()
	names = map[string]bool{}
	var (
		at sync.WaitGroup
		mu sync.Mutex
	)
	for range 3 {
		at.Go(func() {
			for {
				name, err := d.Store.MakeLogPartition(t.Context(), log, ahead)
				if err != nil && !errors.Is(err, store.ErrInUse) {
					t.Error(err)
					return
				}
				if name == "" {
					return
				}
				mu.Lock()
				if names[name] {
					t.Errorf("%s was made twice", name)
				}
				names[name] = true
				mu.Unlock()
			}
		})
	}
	at.Wait()
	for { // a call that found another one running has returned
		name, err := d.Store.MakeLogPartition(t.Context(), log, ahead)
		if err != nil {
			t.Fatal(err)
		}
		if name == "" {
			return names
		}
		names[name] = true
	}
}

// The coming months have partitions; rows that came before theirs was there move.
func TestMakeLogPartition(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	early := d.Accept(t, company, func(e *store.NewEmail) { e.ID = idOf(-time.Until(monthsFromNow(3).Add(day))) })
	apply(t, d, cancelOf(early))
	in := func() string {
		return ask[string](t, d, `SELECT tableoid::regclass FROM email_logs WHERE outbox_id = $1`, early)
	}
	if got := in(); got != "email_logs_default" {
		t.Fatalf("it stands in %s", got)
	}
	want := "email_logs_" + monthsFromNow(3).Format("2006_01")
	if names := made(t, d, store.EmailLogs, 5); len(names) != 4 || !names[want] {
		t.Errorf("made %v", names)
	}
	if got := in(); got != want {
		t.Errorf("it stands in %s", got)
	}
	if names := made(t, d, store.EmailLogs, 5); len(names) != 0 {
		t.Errorf("made once more: %v", names)
	}
	if n := partitions(t, d, store.EmailEvents); n != 2 {
		t.Errorf("%d partitions of the events", n)
	}
	// Each is made like the others.
	if n := ask[int](t, d, `SELECT count(DISTINCT shape) FROM (
		SELECT c.relname, string_agg(d.index, ';' ORDER BY d.index) || c.reloptions::text AS shape
		FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid JOIN pg_indexes i ON i.tablename = c.relname
		CROSS JOIN LATERAL regexp_replace(i.indexdef, 'INDEX \S+ ON \S+', 'INDEX ON') AS d (index)
		WHERE inhparent = 'email_logs'::regclass GROUP BY c.relname, c.reloptions) shapes`); n != 1 {
		t.Errorf("%d kinds of partitions", n)
	}
}

// A partition goes when its last email is old enough, and takes nothing with it of emails
// that are not purged yet.
func TestDropLogPartition(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for _, log := range []store.Log{store.EmailLogs, store.EmailEvents} {
		pastPartition(t, d, log, 3)
		pastPartition(t, d, log, 2)
	}
	inMonth := func(back int) time.Duration { return time.Since(monthsFromNow(-back).Add(10 * day)) }
	gone, purgedLater := aged(t, d, company, inMonth(3), email.Sent), aged(t, d, company, inMonth(3)-time.Hour, email.Failed)
	run(t, d, `DELETE FROM email_outbox WHERE id = $1`, gone)
	young := aged(t, d, company, inMonth(2), email.Sent)
	run(t, d, `DELETE FROM email_outbox WHERE id = $1`, young)

	age := time.Since(monthsFromNow(-2)) - day // of the last of that month
	for _, log := range []store.Log{store.EmailLogs, store.EmailEvents} {
		if p, err := d.Store.DropLogPartition(t.Context(), log, age+2*day); err != nil || p.Name != "" {
			t.Errorf("too young: %+v, %v", p, err)
		}
		rows := map[store.Log]int{store.EmailLogs: 1, store.EmailEvents: 4}[log]
		p, err := d.Store.DropLogPartition(t.Context(), log, age)
		if want := (store.DroppedPartition{Name: string(log) + "_" + monthsFromNow(-3).Format("2006_01"), Dropped: true, Moved: rows}); err != nil || p != want {
			t.Errorf("%+v, %v, want %+v", p, err, want)
		}
		if p, err := d.Store.DropLogPartition(t.Context(), log, age); err != nil || p.Name != "" {
			t.Errorf("the next one: %+v, %v", p, err)
		}
	}
	expectKept(t, d, "email_logs", "outbox_id", purgedLater, young)
	expectKept(t, d, "email_events", "email_log_id", purgedLater, young)
	// Its life goes on: the next step stands on the last one.
	apply(t, d, replayOf(purgedLater))
	if got := timeline(t, d, purgedLater); got != "RECEIVED VALIDATED SENT_ATTEMPT FAILED REPLAYED" {
		t.Errorf("timeline: %s", got)
	}
}

// An operation that would have to wait gives up at once, and what waits behind it goes on.
func TestLogPartitions_DoNotWait(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	pastPartition(t, d, store.EmailLogs, 3)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM email_logs`); err != nil { // a backup, perhaps
		t.Fatal(err)
	}
	begun := time.Now()
	if _, err := d.Store.DropLogPartition(t.Context(), store.EmailLogs, 30*day); !errors.Is(err, store.ErrInUse) {
		t.Errorf("drop: %v", err)
	}
	if _, err := d.Store.MakeLogPartition(t.Context(), store.EmailLogs, 3); !errors.Is(err, store.ErrInUse) {
		t.Errorf("make: %v", err)
	}
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("it waited %s", took)
	}
	if n := partitions(t, d, store.EmailLogs); n != 3 {
		t.Errorf("%d partitions", n)
	}
}

func TestLogPartitions_Refuse(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	if _, err := d.Store.DropLogPartition(t.Context(), store.EmailLogs, time.Hour); err == nil {
		t.Error("dropped what is an hour old")
	}
	if _, err := d.Store.DropLogPartition(t.Context(), "companies", 30*day); err == nil {
		t.Error("dropped something else")
	}
	if _, err := d.Store.MakeLogPartition(t.Context(), "companies", 3); err == nil {
		t.Error("made a partition of something else")
	}
}

// What a month's partition does not hold is deleted row by row: of the default partition,
// and of one company.
func TestPurgeLogs(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	aged(t, d, company, 400*day, email.Sent) // in the default partition, as the next one
	unpurged := aged(t, d, company, 401*day, email.Sent)
	young := aged(t, d, company, 0, email.Sent)
	theirs, theirsYoung := aged(t, d, other, 0, email.Sent), aged(t, d, other, 0, email.Sent)
	ofOther := func(ctx context.Context, age time.Duration, limit int) (store.Cleaned, error) {
		return d.Store.PurgeCompanyLogs(ctx, other, age, limit)
	}
	run(t, d, `DELETE FROM email_outbox WHERE id <> $1`, unpurged)

	if n := drained(t, d.Store.PurgeLogs, 365*day, 1); n != 1 {
		t.Errorf("%d deleted", n)
	}
	expectKept(t, d, "email_logs", "outbox_id", unpurged, young, theirs, theirsYoung)
	expectKept(t, d, "email_events", "email_log_id", unpurged, young, theirs, theirsYoung)
	run(t, d, `UPDATE retention_walks SET begun_at = now() - interval '2 days'`)
	run(t, d, `DELETE FROM email_outbox`)
	drained(t, d.Store.PurgeLogs, 365*day, 10)
	drained(t, d.Store.PurgeLogs, 365*day, 10)
	expectKept(t, d, "email_logs", "outbox_id", young, theirs, theirsYoung)

	// A month that has a partition is not gone through: it will be dropped.
	pastPartition(t, d, store.EmailLogs, 14)
	inMonth := aged(t, d, company, time.Since(monthsFromNow(-14).Add(day)), email.Cancelled)
	run(t, d, `DELETE FROM email_outbox`)
	run(t, d, `DELETE FROM retention_walks`)
	if n := drained(t, d.Store.PurgeLogs, 365*day, 10); n != 0 {
		t.Errorf("%d deleted out of a partition", n)
	}
	expectKept(t, d, "email_logs", "outbox_id", inMonth, young, theirs, theirsYoung)

	moved := idOf(8 * day)
	for table, key := range map[string]string{"email_logs": "outbox_id", "email_events": "email_log_id"} {
		run(t, d, `UPDATE `+table+` SET `+key+` = $2 WHERE `+key+` = $1`, theirs, moved)
	}
	if n := drained(t, ofOther, 7*day, 1); n != 1 {
		t.Errorf("%d of the company deleted", n)
	}
	expectKept(t, d, "email_logs", "outbox_id", inMonth, young, theirsYoung)
	expectKept(t, d, "email_events", "email_log_id", inMonth, young, theirsYoung)
}

// A partition stays as long as one company wants its logs kept, and what others have in it
// goes row by row.
func TestLogPartitions_ACompanyKeepsThemLonger(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	pastPartition(t, d, store.EmailLogs, 14)
	pastPartition(t, d, store.EmailEvents, 14)
	long := 600
	if err := d.Store.SetRetention(t.Context(), because("their contract"), store.Retention{CompanyID: other, Logs: &long}); err != nil {
		t.Fatal(err)
	}
	age := time.Since(monthsFromNow(-14).Add(day))
	gone, young := aged(t, d, company, age, email.Sent), aged(t, d, company, 0, email.Sent)
	theirs := aged(t, d, other, age-time.Hour, email.Sent)
	run(t, d, `DELETE FROM email_outbox`)

	for _, log := range []store.Log{store.EmailLogs, store.EmailEvents} {
		if p, err := d.Store.DropLogPartition(t.Context(), log, 365*day); err != nil || p.Name != "" {
			t.Errorf("%+v, %v", p, err)
		}
	}
	if n := drained(t, d.Store.PurgeEvents, 365*day, 5); n != 4 {
		t.Errorf("%d events deleted", n)
	}
	expectKept(t, d, "email_events", "email_log_id", theirs, young)
	expectKept(t, d, "email_logs", "outbox_id", gone, theirs, young)
	if n := drained(t, d.Store.PurgeLogs, 365*day, 1); n != 1 {
		t.Errorf("%d logs deleted", n)
	}
	expectKept(t, d, "email_logs", "outbox_id", theirs, young)

	if err := d.Store.SetRetention(t.Context(), because("their contract"), store.Retention{CompanyID: other}); err != nil { // as the others
		t.Fatal(err)
	}
	for _, log := range []store.Log{store.EmailLogs, store.EmailEvents} {
		if p, err := d.Store.DropLogPartition(t.Context(), log, 365*day); err != nil || !p.Dropped {
			t.Errorf("%+v, %v", p, err)
		}
	}
	expectKept(t, d, "email_events", "email_log_id", young)
	expectKept(t, d, "email_logs", "outbox_id", young)
}

func TestPurgeEvents(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	ids := []uuid.UUID{
		aged(t, d, company, 100*day, email.Sent), aged(t, d, company, 99*day, email.Sent), aged(t, d, company, 89*day, email.Sent),
	}
	run(t, d, `DELETE FROM email_outbox WHERE id <> $1`, ids[1])
	if n := drained(t, d.Store.PurgeEvents, 90*day, 3); n != 4 {
		t.Errorf("%d deleted", n)
	}
	expectKept(t, d, "email_events", "email_log_id", ids[1:]...)
	expectKept(t, d, "email_logs", "outbox_id", ids...)
}

// Partitions come and go while emails are sent: no write fails because of it.
func TestLogPartitions_WhileEmailsAreSent(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for back := 3; back < 9; back++ {
		pastPartition(t, d, store.EmailLogs, back)
		pastPartition(t, d, store.EmailEvents, back)
	}
	advancer := d.Store.NewAdvancer()
	defer advancer.Close()
	ended := make(chan struct{})
	var sending sync.WaitGroup
	var sent [8]int
	for i := range sent {
		sending.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				id, token := d.Accept(t, company, nil), uuid.New()
				for _, step := range []store.Transition{claimOf(company, id, token, "C-"+id.String()), sentOf(id, token)} {
					if done, err := advancer.Advance(t.Context(), step); err != nil || !done.Applied {
						t.Errorf("%+v, %v", done, err)
						return
					}
				}
				sent[i]++
			}
		})
	}
	for _, log := range []store.Log{store.EmailLogs, store.EmailEvents} {
		for partitions(t, d, log) != 4 {
			if _, err := d.Store.DropLogPartition(t.Context(), log, 45*day); err != nil && !errors.Is(err, store.ErrInUse) {
				t.Fatal(err)
			}
			if _, err := d.Store.MakeLogPartition(t.Context(), log, 3); err != nil && !errors.Is(err, store.ErrInUse) {
				t.Fatal(err)
			}
		}
	}
	close(ended)
	sending.Wait()
	for i, n := range sent {
		if n == 0 {
			t.Errorf("sender %d sent nothing", i)
		}
	}
}
