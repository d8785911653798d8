package quota_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/storetest"
)

// maxCounted is how many emails a request counts.
const maxCounted = 100_000

// wait adds n emails of the company that wait until the next hour.
func wait(t *testing.T, d storetest.Database, company uuid.UUID, n int, status string) {
	t.Helper()
	d.Run(t, `INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, status, attempts, next_at, expires_at)
		SELECT ('01900000' || substr(gen_random_uuid()::text, 9))::uuid, l.company_id, l.id, 'r', '{}', 's', '<p>', sha256('c'), 1, $3, CASE $3 WHEN 'PENDING' THEN 0 ELSE 1 END, now() + interval '1 hour', now() + interval '1 day'
		FROM dispatch_lanes l, generate_series(1, $2::int) WHERE l.company_id = $1 AND l.queue = 'email:send' AND l.mailing_id IS NULL`, company, n, status)
}

func limitScheduled(t *testing.T, d storetest.Database, company uuid.UUID, limit int64) {
	t.Helper()
	if err := d.Store.SetQuotas(t.Context(), storetest.Operator(), company, map[quota.Quota]*int64{quota.ScheduledEmails: &limit}); err != nil {
		t.Fatal(err)
	}
}

// A request of a company at its quota reads a bounded number of the emails that wait, since it has locked the company's quotas
// meanwhile. It is accepted or refused.
func TestCount_RequestIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status  string
		total   int64 // of scheduled emails in use
		limit   int   // of emails that are read
		counted int64
	}{
		"many are scheduled": {"PENDING", 3 * maxCounted, 0, maxCounted + 5000},
		"many wait":          {"RETRY_SCHEDULED", 1000, maxCounted + 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company := d.Company(t)
			wait(t, d, company, maxCounted+5000, c.status)
			d.Run(t, `DELETE FROM quota_deltas`)
			d.Run(t, `UPDATE quota_totals SET scheduled = $2, scheduled_at = now() - interval '1 hour' WHERE company_id = $1`, company, c.total)
			for _, limit := range []int64{c.total, c.total, c.total + 1} {
				limitScheduled(t, d, company, limit)
				tx, err := sqlx.NewDb(d.SQL, "postgres").BeginTxx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback() }()
				before := rowsRead(t, tx)
				err = quota.TakeFrom(t.Context(), tx, company, quota.Demand{quota.ScheduledEmails: 1}, false)
				var over *quota.Error
				if refused := errors.As(err, &over); refused != (limit == c.total) || !refused && err != nil {
					t.Errorf("limit %d: %v", limit, err)
				}
				if read := rowsRead(t, tx) - before; read > c.limit {
					t.Errorf("limit %d: %d rows were read", limit, read)
				}
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
				c.limit = 0 // no request counts again before the dispatcher has counted
			}
			limitScheduled(t, d, company, c.total)
			tx, err := d.SQL.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			_, err = outbox.EnqueueIn(t.Context(), tx, outbox.ProgramEmail{
				CompanyID: company, Aggregate: outbox.Aggregate{Type: "interview", ID: "1", EventType: "R"}, TTL: time.Hour, RequestID: "r", SendAt: time.Now().Add(time.Hour),
				Body: []byte(`{"to": "ana@example.com", "subject": "s", "html": "<p>Oi</p>", "recipient": {"externalId": "1", "email": "ana@example.com"}}`),
			})
			var over *quota.Error
			if !errors.As(quota.Refusal(err), &over) {
				t.Errorf("a program's email: %v", err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}

			countDue(t, d, maxCounted/3, company)
			countDue(t, d, maxCounted/3)
			if n := scheduled(t, d, company); n != c.counted {
				t.Errorf("%d are in use, want %d", n, c.counted)
			}
		})
	}
}

// rowsRead returns how many rows of email_outbox the session has read that Postgres has not yet added to its statistics.
func rowsRead(t *testing.T, tx *sqlx.Tx) (n int) {
	t.Helper()
	if err := tx.Get(&n, `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'email_outbox'`); err != nil {
		t.Fatal(err)
	}
	return n
}

// countDue counts the emails of the companies that are due, which are those of want.
func countDue(t *testing.T, d storetest.Database, page int, want ...uuid.UUID) {
	t.Helper()
	due, err := d.Store.DueCounts(t.Context())
	if err != nil || !slices.Equal(due, want) {
		t.Fatalf("%v are due, %v, want %v", due, err, want)
	}
	for _, company := range due {
		if err := d.Store.Count(t.Context(), company, page); err != nil {
			t.Fatal(err)
		}
	}
}

// A count reads the emails of all lanes in pages. What is accepted meanwhile is counted once, folded or not.
func TestCount_Pages(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	accept := func(company uuid.UUID, priority int, age time.Duration) {
		d.Accept(t, company, func(e *outbox.NewEmail) {
			e.ID, e.Priority, e.SendAt = storetest.IDOf(age), priority, time.Now().Add(time.Hour)
		})
	}
	for n := range 9 {
		accept(company, 1+n, time.Minute)
	}
	wait(t, d, company, 4, "RETRY_SCHEDULED")
	d.Accept(t, company, nil)
	accept(d.Company(t), 5, time.Minute)
	want := int64(9)
	for _, page := range []int{1, 2, 5, 13, 14, 100} {
		for _, fold := range []bool{false, true} {
			d.Run(t, `UPDATE quota_totals SET scheduled = 1000000 WHERE company_id = $1`, company)
			c, err := d.Store.BeginCount(t.Context(), company)
			for last, n := false, 0; err == nil && !last; n++ {
				if n == 1 || page > 10 && n == 0 {
					accept(company, 9, -time.Minute)
					want++
					if _, err := d.Store.FoldQuotas(t.Context(), map[bool]int{true: 100}[fold], true); err != nil {
						t.Fatal(err)
					}
				}
				last, err = d.Store.CountPage(t.Context(), c, page)
			}
			if err == nil {
				err = d.Store.EndCount(t.Context(), c)
			}
			if got := scheduled(t, d, company); err != nil || got != want {
				t.Fatalf("pages of %d, folded %t: %d are in use, %v, want %d", page, fold, got, err, want)
			}
			d.Run(t, `UPDATE email_outbox SET id = ('01900000' || substr(id::text, 9))::uuid WHERE id > $1`, storetest.IDOf(0))
		}
	}
}

// The result of a count is not written if the emails have been counted meanwhile, as by a request.
func TestCount_Superseded(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for _, before := range []string{"NULL", "now()"} {
		d.Run(t, `UPDATE quota_totals SET scheduled = 1000, scheduled_at = `+before+` WHERE company_id = $1`, company)
		c, err := d.Store.BeginCount(t.Context(), company)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Store.CountPage(t.Context(), c, 10); err != nil {
			t.Fatal(err)
		}
		d.Run(t, `SELECT email_gateway_recount_scheduled($1, '-1 h')`, company)
		if err := d.Store.EndCount(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if n := storetest.Ask[int](t, d, `SELECT scheduled FROM quota_totals WHERE company_id = $1`, company); n != 0 {
			t.Errorf("%d are in use", n)
		}
	}
}

// scheduled is the number of scheduled emails that are in use.
func scheduled(t *testing.T, d storetest.Database, company uuid.UUID) int64 {
	t.Helper()
	use, err := quota.Read(t.Context(), sqlx.NewDb(d.SQL, "postgres"), company, false)
	if err != nil {
		t.Fatal(err)
	}
	return use[quota.ScheduledEmails].Use
}
