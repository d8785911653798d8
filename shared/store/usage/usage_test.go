package usage_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/event"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/usage"
)

// The counts are those of email_logs, of one company, and each email counts once in each of them, whatever SES
// reports again.
func TestMonth_Counts(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	send(t, d, other, email.Sent)
	const body = int64(len("<p>Olá, sua fatura chegou.</p>"))
	d.Accept(t, company, nil) // waits
	send(t, d, company, email.Failed)
	for _, kinds := range [][]email.EventType{
		nil,
		{email.EventDelivered},
		{email.EventDelivered, email.EventDelivered}, // of two recipients
		{email.EventBounced},
		{email.EventDelivered, email.EventBounced, email.EventBounced},
		{email.EventDelivered, email.EventComplained, email.EventComplained},
		{email.EventComplained, email.EventDelivered, email.EventBounced},
		{email.EventOpened, email.EventDeliveryDelayed},
	} {
		id, attempt := send(t, d, company, email.Sent)
		for _, kind := range kinds {
			report(t, d, company, id, attempt, map[email.EventType]string{
				email.EventDelivered: "Delivery", email.EventBounced: "Bounce", email.EventComplained: "Complaint", email.EventOpened: "Open",
				email.EventDeliveryDelayed: "DeliveryDelay",
			}[kind], kind, nil)
		}
	}
	id, attempt := send(t, d, company, email.Sent)
	report(t, d, company, id, attempt, "Complaint", email.EventComplained, map[string]any{"complaintFeedbackType": "not-spam"})
	mailing := d.Mailing(t, company, 3, nil)
	d.Run(t, `UPDATE mailings SET file_bytes = 1000 WHERE id = $1`, mailing)
	templates := storetest.Ask[int64](t, d, `SELECT octet_length(html) + coalesce(octet_length(text_body), 0) FROM mailings WHERE id = $1`, mailing)
	d.Run(t, `UPDATE mailings SET html = '', text_body = NULL WHERE id = $1`, mailing) // bytes that are gone were still used
	dry := d.Mailing(t, company, 3, nil)
	d.Run(t, `UPDATE mailings SET dry_run = true, file_bytes = 500 WHERE id = $1`, dry)
	dryTemplates := templates // of a dry run, the api stores none

	s := count(t, d)
	m := month(t, s, company, time.Time{})
	want := usage.Counts{Accepted: 11, Sent: 9, Delivered: 5, Bounced: 3, Complained: 2, Mailings: 1, Bytes: 11*body + 1000 + templates + dryTemplates}
	if diff := cmp.Diff(want, m.Total); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	logs := [...]int64{
		storetest.Ask[int64](t, d, `SELECT count(*) FROM email_outbox WHERE company_id = $1 AND target = 'email:send'`, company),
		storetest.Ask[int64](t, d, `SELECT count(*) FROM email_logs WHERE company_id = $1 AND sent_at IS NOT NULL`, company),
		storetest.Ask[int64](t, d, `SELECT count(*) FROM email_logs WHERE company_id = $1 AND delivered_at IS NOT NULL`, company),
		storetest.Ask[int64](t, d, `SELECT count(*) FROM email_logs WHERE company_id = $1 AND delivery_problem = 'complained'`, company),
	}
	if got := [...]int64{m.Total.Accepted, m.Total.Sent, m.Total.Delivered, m.Total.Complained}; got != logs {
		t.Errorf("usage has %v, email_logs %v", got, logs)
	}
	if again := month(t, count(t, d), company, time.Time{}); again.Total != m.Total {
		t.Errorf("counted again: %+v", again.Total)
	}
	if theirs := month(t, s, other, time.Time{}).Total; theirs != (usage.Counts{Accepted: 1, Sent: 1, Bytes: body}) {
		t.Errorf("of the other company: %+v", theirs)
	}
}

// An email that fails, is replayed and is sent counts once as accepted and once as sent.
func TestMonth_Replayed(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id, _ := send(t, d, company, email.Failed)
	if _, err := d.Store.ReplayEmail(t.Context(), storetest.Operator(), company, id, time.Hour); err != nil {
		t.Fatal(err)
	}
	attempt := attemptOn(t, d, id, email.Sent)
	report(t, d, company, id, attempt, "Delivery", email.EventDelivered, nil)
	if m := month(t, count(t, d), company, time.Time{}).Total; m.Accepted != 1 || m.Sent != 1 || m.Delivered != 1 {
		t.Errorf("%+v", m)
	}
}

// Each event counts in the month in which it was recorded: a late bounce changes no month that is over. A month that is
// over becomes final when all of its rows are counted.
func TestMonth_Over(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	now := storetest.Ask[time.Time](t, d, `SELECT now()`).UTC()
	begin := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	last := begin.AddDate(0, -1, 0)
	d.Run(t, `UPDATE companies SET created_at = $2 WHERE id = $1`, company, last.AddDate(0, 0, 9).Add(time.Hour))
	id, attempt := send(t, d, company, email.Sent)
	d.Run(t, `UPDATE quota_deltas SET day = $1`, last.AddDate(0, 0, 11))
	d.Run(t, `UPDATE event_feed SET created_at = $1`, begin.Add(-time.Second))
	s := usage.New(d.Store.DB())
	if err := s.AddCompanies(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	pending := month(t, s, company, last)
	count(t, d)
	report(t, d, company, id, attempt, "Bounce", email.EventBounced, nil)
	count(t, d)
	over, current := month(t, s, company, last), month(t, s, company, time.Time{})
	if pending.Final || over.Final != now.After(begin.Add(time.Hour)) || current.Final {
		t.Errorf("final: %t before the month is counted, %t after that, %t of the current one", pending.Final, over.Final, current.Final)
	}
	if over.Total.Accepted != 1 || over.Total.Sent != 1 || over.Total.Bounced != 0 || current.Total.Sent != 0 || current.Total.Bounced != 1 {
		t.Errorf("last month %+v, this month %+v", over.Total, current.Total)
	}
	if n := len(over.Days); !over.Days[0].Date.Equal(last.AddDate(0, 0, 9)) || !over.Days[n-1].Date.Equal(begin.AddDate(0, 0, -1)) || n != begin.AddDate(0, 0, -1).Day()-9 {
		t.Errorf("%d days, from %s to %s", n, over.Days[0].Date, over.Days[n-1].Date)
	}
	if d := over.Days[2]; d.Accepted != 1 || over.Days[len(over.Days)-1].Sent != 1 {
		t.Errorf("days %+v", over.Days)
	}
	if n := len(current.Days); n != now.Day() || !current.Days[0].Date.Equal(begin) {
		t.Errorf("this month has %d days, want %d", n, now.Day())
	}
	if _, err := s.Month(t.Context(), company, last.AddDate(0, -1, 0)); !errors.Is(err, usage.ErrUncounted) {
		t.Errorf("before the company: %v", err)
	}
	if _, err := s.Month(t.Context(), company, begin.AddDate(0, 1, 0)); !errors.Is(err, usage.ErrFuture) {
		t.Errorf("next month: %v", err)
	}
	if _, err := s.Month(t.Context(), uuid.New(), begin); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("no company: %v", err)
	}
	// Logs are deleted, usage is not.
	d.Run(t, `DELETE FROM email_events`)
	d.Run(t, `DELETE FROM email_logs`)
	if after := month(t, s, company, last); after.Total != over.Total {
		t.Errorf("after the logs are deleted: %+v", after.Total)
	}
}

// Any number of processes may fold while emails are sent: each event is counted once. A company that a transaction has
// locked is counted later, and delays no other.
func TestFold_Concurrent(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	companies := []uuid.UUID{d.Company(t), d.Company(t), d.Company(t)}
	s, feed := usage.New(d.Store.DB()), event.New(d.Store.DB())
	if err := s.AddCompanies(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var folders, senders sync.WaitGroup
	for range 3 {
		folders.Go(func() {
			for {
				_, errAssign := feed.AssignPositions(t.Context(), 5)
				_, errFold := s.Fold(t.Context(), uuid.Nil, 2, 3)
				_, errQuotas := d.Store.FoldQuotas(t.Context(), 10, false)
				if err := errors.Join(errAssign, errFold, errQuotas); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	const each = 20
	for _, company := range companies {
		for range 3 {
			senders.Go(func() {
				for range each {
					id, attempt := send(t, d, company, email.Sent)
					if rand.N(2) == 0 {
						report(t, d, company, id, attempt, "Delivery", email.EventDelivered, nil)
					}
				}
			})
		}
	}
	senders.Wait()
	close(done)
	folders.Wait()
	count(t, d)
	for _, company := range companies {
		delivered := storetest.Ask[int64](t, d, `SELECT count(*) FROM email_logs WHERE company_id = $1 AND delivered_at IS NOT NULL`, company)
		if m := month(t, s, company, time.Time{}).Total; m.Accepted != 3*each || m.Sent != 3*each || m.Delivered != delivered {
			t.Errorf("%+v, want %d delivered", m, delivered)
		}
	}

	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM usage_companies WHERE company_id = $1 FOR UPDATE`, companies[0]); err != nil {
		t.Fatal(err)
	}
	for _, company := range companies {
		send(t, d, company, email.Sent)
	}
	count(t, d)
	for i, company := range companies {
		want := int64(3*each + 1)
		if i == 0 {
			want--
		}
		if m := month(t, s, company, time.Time{}).Total; m.Sent != want {
			t.Errorf("company %d has sent %d, want %d", i, m.Sent, want)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if m := month(t, count(t, d), companies[0], time.Time{}).Total; m.Sent != 3*each+1 {
		t.Errorf("after the lock: %d", m.Sent)
	}
}

// A transaction that commits late is counted, in the day in which it began.
func TestFold_LateCommit(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, nil)
	send(t, d, company, email.Sent)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, statement := range []string{
		`SET LOCAL idle_in_transaction_session_timeout = 0`,
		`INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, sent_at, event_seq, last_event)
		 SELECT id, company_id, 'ana@example.com', 's', 'SENT', 1, 'r', now(), now(), now(), 4, 'SENT' FROM email_outbox WHERE id = '` + id.String() + `'`,
		`INSERT INTO email_events (email_log_id, seq, previous, type, created_at)
		 SELECT '` + id.String() + `', n, (ARRAY[NULL, 'RECEIVED', 'VALIDATED', 'SENT_ATTEMPT'])[n], (ARRAY['RECEIVED', 'VALIDATED', 'SENT_ATTEMPT', 'SENT'])[n], now() FROM generate_series(1, 4) n`,
	} {
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	send(t, d, company, email.Sent)
	s := count(t, d)
	if m := month(t, s, company, time.Time{}).Total; m.Sent != 2 {
		t.Errorf("beside the open transaction: %+v", m)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	count(t, d)
	if m := month(t, s, company, time.Time{}).Total; m.Sent != 3 {
		t.Errorf("after its commit: %+v", m)
	}
}

// The quotas are those of the company, and scheduled emails that are due do not count.
func TestQuotas(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	limit := int64(7)
	if err := d.Store.SetQuotas(t.Context(), storetest.Operator(), company, map[quota.Quota]*int64{quota.ScheduledEmails: &limit}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		d.Accept(t, company, func(e *outbox.NewEmail) { e.SendAt = time.Now().Add(time.Hour) })
	}
	d.Run(t, `UPDATE email_outbox SET next_at = now() WHERE id = (SELECT min(id::text)::uuid FROM email_outbox)`)
	got, err := usage.New(d.Store.DB()).Quotas(t.Context(), company)
	if err != nil {
		t.Fatal(err)
	}
	want, err := d.Store.CompanyQuotas(t.Context(), company)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d quotas, want %d", len(got), len(want))
	}
	for i, q := range want {
		if g := got[i]; g.Name != string(q.Quota) || g.Limit != q.Limit || g.Use != q.Use || (g.Reset == nil) != (q.Reset == nil) {
			t.Errorf("%+v, want %+v", g, q)
		}
	}
	if got[0].Use != 2 || got[0].Limit != 7 {
		t.Errorf("%+v", got[0])
	}
}
