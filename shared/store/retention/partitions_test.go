package retention_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/event"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/tenant"
	"email-gateway/shared/store/usage"
)

func partitions(t *testing.T, d storetest.Database, log retention.Log) int {
	t.Helper()
	return storetest.Ask[int](t, d, `SELECT count(*) FROM log_partitions WHERE log = $1`, string(log))
}

// made creates the missing partitions from several goroutines, like concurrent dispatchers.
func made(t *testing.T, d storetest.Database, log retention.Log, ahead int) (names map[string]bool) {
	t.Helper()
	names = map[string]bool{}
	var (
		at sync.WaitGroup
		mu sync.Mutex
	)
	for range 3 {
		at.Go(func() {
			for {
				name, err := retention.New(d.Store.DB()).MakeLogPartition(t.Context(), log, ahead)
				if err != nil && !errors.Is(err, retention.ErrInUse) {
					t.Error(err)
					return
				}
				if name == "" {
					return
				}
				mu.Lock()
				if names[name] {
					t.Errorf("%s was created twice", name)
				}
				names[name] = true
				mu.Unlock()
			}
		})
	}
	at.Wait()
	for { // a call that found another one running has returned
		name, err := retention.New(d.Store.DB()).MakeLogPartition(t.Context(), log, ahead)
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
	early := d.Accept(t, company, func(e *outbox.NewEmail) { e.ID = storetest.IDOf(-time.Until(storetest.MonthsFromNow(3).Add(day))) })
	storetest.Apply(t, d, storetest.CancelOf(early))
	in := func() string {
		return storetest.Ask[string](t, d, `SELECT tableoid::regclass FROM email_logs WHERE outbox_id = $1`, early)
	}
	if got := in(); got != "email_logs_default" {
		t.Fatalf("the row is in the partition %s", got)
	}
	want := "email_logs_" + storetest.MonthsFromNow(3).Format("2006_01")
	if names := made(t, d, retention.EmailLogs, 5); len(names) != 4 || !names[want] {
		t.Errorf("made %v", names)
	}
	if got := in(); got != want {
		t.Errorf("the row is in the partition %s", got)
	}
	if names := made(t, d, retention.EmailLogs, 5); len(names) != 0 {
		t.Errorf("made once more: %v", names)
	}
	if n := partitions(t, d, retention.EmailEvents); n != 2 {
		t.Errorf("%d partitions of the events", n)
	}
	// Each is made like the others.
	if n := storetest.Ask[int](t, d, `SELECT count(DISTINCT shape) FROM (
		SELECT c.relname, string_agg(d.index, ';' ORDER BY d.index) || c.reloptions::text AS shape
		FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid JOIN pg_indexes i ON i.tablename = c.relname
		CROSS JOIN LATERAL regexp_replace(i.indexdef, 'INDEX \S+ ON \S+', 'INDEX ON') AS d (index)
		WHERE inhparent = 'email_logs'::regclass GROUP BY c.relname, c.reloptions) shapes`); n != 1 {
		t.Errorf("%d kinds of partitions", n)
	}
}

// A partition is dropped when its last email is old enough, unless it has rows of emails that are not purged yet.
func TestDropLogPartition(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for _, log := range []retention.Log{retention.EmailLogs, retention.EmailEvents} {
		storetest.PastPartition(t, d, log, 3)
		storetest.PastPartition(t, d, log, 2)
	}
	inMonth := func(back int) time.Duration { return time.Since(storetest.MonthsFromNow(-back).Add(10 * day)) }
	gone, purgedLater := storetest.EndedEmail(t, d, company, inMonth(3), email.Sent), storetest.EndedEmail(t, d, company, inMonth(3)-time.Hour, email.Failed)
	sentLater := storetest.EndedEmail(t, d, company, inMonth(3)-2*time.Hour, email.Sent)
	d.Run(t, `DELETE FROM email_outbox WHERE id = $1`, gone)
	young := storetest.EndedEmail(t, d, company, inMonth(2), email.Sent)
	d.Run(t, `DELETE FROM email_outbox WHERE id = $1`, young)
	rows, sent := published(t, d)
	if rows == 0 || sent != 3 {
		t.Fatalf("%d rows of the feed and %d sent emails are counted", rows, sent)
	}

	age := time.Since(storetest.MonthsFromNow(-2)) - day // of the last of that month
	for _, log := range []retention.Log{retention.EmailLogs, retention.EmailEvents} {
		if p, err := retention.New(d.Store.DB()).DropLogPartition(t.Context(), log, age+2*day); err != nil || p.Name != "" {
			t.Errorf("too young: %+v, %v", p, err)
		}
		kept := map[retention.Log]int{retention.EmailLogs: 2, retention.EmailEvents: 8}[log]
		p, err := retention.New(d.Store.DB()).DropLogPartition(t.Context(), log, age)
		if want := (retention.DroppedPartition{Name: string(log) + "_" + storetest.MonthsFromNow(-3).Format("2006_01"), Dropped: true, Moved: kept}); err != nil || p != want {
			t.Errorf("%+v, %v, want %+v", p, err, want)
		}
		if p, err := retention.New(d.Store.DB()).DropLogPartition(t.Context(), log, age); err != nil || p.Name != "" {
			t.Errorf("the next one: %+v, %v", p, err)
		}
	}
	expectKept(t, d, "email_logs", "outbox_id", purgedLater, sentLater, young)
	expectKept(t, d, "email_events", "email_log_id", purgedLater, sentLater, young)
	if now, counted := published(t, d); now != rows || counted != sent {
		t.Errorf("%d rows of the feed and %d sent emails are counted, %d and %d before the drop", now, counted, rows, sent)
	}
	// The next event of the email follows the last one of its timeline.
	storetest.Apply(t, d, storetest.ReplayOf(purgedLater))
	if got := storetest.Timeline(t, d, purgedLater); got != "RECEIVED VALIDATED SENT_ATTEMPT FAILED REPLAYED" {
		t.Errorf("timeline: %s", got)
	}
}

// published counts events as the dispatcher does, and returns how many rows the feed has and how many sent emails are counted.
func published(t *testing.T, d storetest.Database) (rows, sent int) {
	t.Helper()
	feed, counts := event.New(d.Store.DB()), usage.New(d.Store.DB())
	if _, err := feed.AssignPositions(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	if err := counts.AddCompanies(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	if _, err := counts.Fold(t.Context(), uuid.Nil, 100, 500); err != nil {
		t.Fatal(err)
	}
	return storetest.Ask[int](t, d, `SELECT count(*) FROM event_feed`), storetest.Ask[int](t, d, `SELECT coalesce(sum(sent), 0) FROM usage_days`)
}

// An operation that would have to wait for a lock gives up at once, and sessions that wait behind it proceed.
func TestLogPartitions_DoNotWait(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	storetest.PastPartition(t, d, retention.EmailLogs, 3)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM email_logs`); err != nil { // a backup, perhaps
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := retention.New(d.Store.DB()).DropLogPartition(t.Context(), retention.EmailLogs, 30*day); !errors.Is(err, retention.ErrInUse) {
		t.Errorf("drop: %v", err)
	}
	if _, err := retention.New(d.Store.DB()).MakeLogPartition(t.Context(), retention.EmailLogs, 3); !errors.Is(err, retention.ErrInUse) {
		t.Errorf("make: %v", err)
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("the operation waited %s", took)
	}
	if n := partitions(t, d, retention.EmailLogs); n != 3 {
		t.Errorf("%d partitions", n)
	}
}

func TestLogPartitions_Refuse(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	if _, err := retention.New(d.Store.DB()).DropLogPartition(t.Context(), retention.EmailLogs, time.Hour); err == nil {
		t.Error("a partition that is an hour old was dropped")
	}
	if _, err := retention.New(d.Store.DB()).DropLogPartition(t.Context(), "companies", 30*day); err == nil {
		t.Error("another table was dropped")
	}
	if _, err := retention.New(d.Store.DB()).MakeLogPartition(t.Context(), "companies", 3); err == nil {
		t.Error("a partition of another table was created")
	}
}

// Rows that are not dropped with a month's partition are deleted one by one: those of the default partition, and of one company.
func TestPurgeLogs(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	storetest.EndedEmail(t, d, company, 400*day, email.Sent) // in the default partition, as the next one
	unpurged := storetest.EndedEmail(t, d, company, 401*day, email.Sent)
	young := storetest.EndedEmail(t, d, company, 0, email.Sent)
	theirs, theirsYoung := storetest.EndedEmail(t, d, other, 0, email.Sent), storetest.EndedEmail(t, d, other, 0, email.Sent)
	ofOther := func(ctx context.Context, age time.Duration, limit int) (retention.Cleaned, error) {
		return retention.New(d.Store.DB()).PurgeCompanyLogs(ctx, other, age, limit)
	}
	d.Run(t, `DELETE FROM email_outbox WHERE id <> $1`, unpurged)

	if n := storetest.Drain(t, retention.New(d.Store.DB()).PurgeLogs, 365*day, 1); n != 1 {
		t.Errorf("%d deleted", n)
	}
	expectKept(t, d, "email_logs", "outbox_id", unpurged, young, theirs, theirsYoung)
	expectKept(t, d, "email_events", "email_log_id", unpurged, young, theirs, theirsYoung)
	d.Run(t, `UPDATE retention_walks SET begun_at = now() - interval '2 days'`)
	d.Run(t, `DELETE FROM email_outbox`)
	storetest.Drain(t, retention.New(d.Store.DB()).PurgeLogs, 365*day, 10)
	storetest.Drain(t, retention.New(d.Store.DB()).PurgeLogs, 365*day, 10)
	expectKept(t, d, "email_logs", "outbox_id", young, theirs, theirsYoung)

	// A month with a partition is not scanned: the partition will be dropped.
	storetest.PastPartition(t, d, retention.EmailLogs, 14)
	inMonth := storetest.EndedEmail(t, d, company, time.Since(storetest.MonthsFromNow(-14).Add(day)), email.Cancelled)
	d.Run(t, `DELETE FROM email_outbox`)
	d.Run(t, `DELETE FROM retention_walks`)
	if n := storetest.Drain(t, retention.New(d.Store.DB()).PurgeLogs, 365*day, 10); n != 0 {
		t.Errorf("%d deleted out of a partition", n)
	}
	expectKept(t, d, "email_logs", "outbox_id", inMonth, young, theirs, theirsYoung)

	moved := storetest.IDOf(8 * day)
	for table, key := range map[string]string{"email_logs": "outbox_id", "email_events": "email_log_id"} {
		d.Run(t, `UPDATE `+table+` SET `+key+` = $2 WHERE `+key+` = $1`, theirs, moved)
	}
	if n := storetest.Drain(t, ofOther, 7*day, 1); n != 1 {
		t.Errorf("%d of the company deleted", n)
	}
	expectKept(t, d, "email_logs", "outbox_id", inMonth, young, theirsYoung)
	expectKept(t, d, "email_events", "email_log_id", inMonth, young, theirsYoung)
}

// A partition is kept as long as the retention of one company requires, and the rows of others are deleted one by one.
func TestLogPartitions_ACompanyKeepsThemLonger(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	storetest.PastPartition(t, d, retention.EmailLogs, 14)
	storetest.PastPartition(t, d, retention.EmailEvents, 14)
	long := 600
	if _, err := d.Store.SetRetention(t.Context(), storetest.Because("their contract"), tenant.Retention{CompanyID: other, Logs: &long}); err != nil {
		t.Fatal(err)
	}
	age := time.Since(storetest.MonthsFromNow(-14).Add(day))
	gone, young := storetest.EndedEmail(t, d, company, age, email.Sent), storetest.EndedEmail(t, d, company, 0, email.Sent)
	theirs := storetest.EndedEmail(t, d, other, age-time.Hour, email.Sent)
	d.Run(t, `DELETE FROM email_outbox`)

	for _, log := range []retention.Log{retention.EmailLogs, retention.EmailEvents} {
		if p, err := retention.New(d.Store.DB()).DropLogPartition(t.Context(), log, 365*day); err != nil || p.Name != "" {
			t.Errorf("%+v, %v", p, err)
		}
	}
	if n := storetest.Drain(t, retention.New(d.Store.DB()).PurgeEvents, 365*day, 5); n != 4 {
		t.Errorf("%d events deleted", n)
	}
	expectKept(t, d, "email_events", "email_log_id", theirs, young)
	expectKept(t, d, "email_logs", "outbox_id", gone, theirs, young)
	if n := storetest.Drain(t, retention.New(d.Store.DB()).PurgeLogs, 365*day, 1); n != 1 {
		t.Errorf("%d logs deleted", n)
	}
	expectKept(t, d, "email_logs", "outbox_id", theirs, young)

	if _, err := d.Store.SetRetention(t.Context(), storetest.Because("their contract"), tenant.Retention{CompanyID: other, Logs: new(int)}); err != nil { // as the others
		t.Fatal(err)
	}
	for _, log := range []retention.Log{retention.EmailLogs, retention.EmailEvents} {
		if p, err := retention.New(d.Store.DB()).DropLogPartition(t.Context(), log, 365*day); err != nil || !p.Dropped {
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
		storetest.EndedEmail(t, d, company, 100*day, email.Sent), storetest.EndedEmail(t, d, company, 99*day, email.Sent), storetest.EndedEmail(t, d, company, 89*day, email.Sent),
	}
	d.Run(t, `DELETE FROM email_outbox WHERE id <> $1`, ids[1])
	if n := storetest.Drain(t, retention.New(d.Store.DB()).PurgeEvents, 90*day, 3); n != 4 {
		t.Errorf("%d deleted", n)
	}
	expectKept(t, d, "email_events", "email_log_id", ids[1:]...)
	expectKept(t, d, "email_logs", "outbox_id", ids...)
}

// Partitions are created and dropped while emails are sent: no write fails because of it.
func TestLogPartitions_WhileEmailsAreSent(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for back := 3; back < 9; back++ {
		storetest.PastPartition(t, d, retention.EmailLogs, back)
		storetest.PastPartition(t, d, retention.EmailEvents, back)
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
				for _, step := range []outbox.Transition{storetest.ClaimOf(company, id, token, "C-"+id.String()), storetest.SentOf(id, token)} {
					if done, err := advancer.Advance(t.Context(), step); err != nil || !done.Applied {
						t.Errorf("%+v, %v", done, err)
						return
					}
				}
				sent[i]++
			}
		})
	}
	for _, log := range []retention.Log{retention.EmailLogs, retention.EmailEvents} {
		for partitions(t, d, log) != 4 {
			if _, err := retention.New(d.Store.DB()).DropLogPartition(t.Context(), log, 45*day); err != nil && !errors.Is(err, retention.ErrInUse) {
				t.Fatal(err)
			}
			if _, err := retention.New(d.Store.DB()).MakeLogPartition(t.Context(), log, 3); err != nil && !errors.Is(err, retention.ErrInUse) {
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
