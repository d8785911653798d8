package quota_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/storetest"
)

// A transaction that a program leaves open keeps the rows that folds delete. They are not read again, by folds or by
// requests, and what the transaction itself has written is counted when it commits.
func TestFold_BesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, idle := d.Company(t), d.Company(t)
	open := d.Company(t) // whose program has the transaction
	const each, rounds = 1000, 20
	add := `INSERT INTO quota_deltas (company_id, emails) SELECT $1, 1 FROM generate_series(1, $2::int)`
	d.Run(t, add, idle, each)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, c := range []uuid.UUID{company, open} {
		if _, err := tx.ExecContext(t.Context(), add, c, 7); err != nil {
			t.Fatal(err)
		}
	}
	db := storetest.Connect(t, d, store.Options{})
	var folds, reads []int
	for range rounds {
		d.Run(t, add, company, each)
		if _, err := d.Store.FoldQuotas(t.Context(), 1000, false); err != nil {
			t.Fatal(err)
		}
		d.Run(t, add, company, 1)
		_, read := storetest.BuffersOn(t, db, `SELECT * FROM email_gateway_use($1, false)`, company)
		_, folded := storetest.BuffersOn(t, db, quota.FoldQuotasSQL, 1000, false)
		reads, folds = append(reads, read), append(folds, folded)
	}
	if first, last := folds[1], folds[rounds-1]; last > 2*first {
		t.Errorf("the last fold read %d buffers, the second one %d", last, first)
	}
	if first, last := reads[1], reads[rounds-1]; last > 2*first {
		t.Errorf("the last request read %d buffers, the second one %d", last, first)
	}

	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	uses := func(what string) {
		t.Helper()
		for c, want := range map[uuid.UUID]int64{company: (each+1)*rounds + 7, open: 7, idle: each} {
			if use, err := quota.Read(t.Context(), sqlx.NewDb(d.SQL, "postgres"), c, false); err != nil || use[quota.EmailsPerDay].Use != want {
				t.Errorf("%s: %d emails, %v, want %d", what, use[quota.EmailsPerDay].Use, err, want)
			}
		}
	}
	uses("after the commit")
	d.Run(t, add, open, 0)
	fold := func(all bool) {
		if _, err := d.Store.FoldQuotas(t.Context(), 1000, all); err != nil {
			t.Fatal(err)
		}
		uses("after a fold")
	}
	fold(false)
	fold(true)
	if n := storetest.Ask[int](t, d, `SELECT count(*) FROM quota_deltas`); n != 0 {
		t.Errorf("%d deltas are not folded", n)
	}

	// As restored from a dump of a server that was further: no fold of this one has seen any of the deltas.
	d.Run(t, `UPDATE quota_totals SET folded = '1000000000000:1000000000000:', folded_before = '1000000000000'`)
	d.Run(t, add, idle, 0)
	d.Run(t, `INSERT INTO quota_deltas (company_id, emails) VALUES ($1, 0)`, company)
	uses("after a restore")
	fold(false)
	if n := storetest.Ask[int](t, d, `SELECT count(*) FROM quota_deltas`); n != 0 {
		t.Errorf("%d deltas are not folded after a restore", n)
	}
}

// The total of a day that has not come yet, of a server whose clock was ahead, does not keep today's emails from being counted.
func TestFold_AfterClockWasAhead(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	fold := func(want int64) {
		t.Helper()
		if _, err := d.Store.FoldQuotas(t.Context(), 1000, false); err != nil {
			t.Fatal(err)
		}
		if use, err := quota.Read(t.Context(), sqlx.NewDb(d.SQL, "postgres"), company, false); err != nil || use[quota.EmailsPerDay].Use != want {
			t.Errorf("%d emails, %v, want %d", use[quota.EmailsPerDay].Use, err, want)
		}
	}
	add := `INSERT INTO quota_deltas (company_id, emails, day) VALUES ($1, 10, (now() AT TIME ZONE 'UTC')::date + $2::int)`
	d.Run(t, `INSERT INTO quota_totals (company_id, day, emails) VALUES ($1, (now() AT TIME ZONE 'UTC')::date + 1, 5) ON CONFLICT (company_id) DO UPDATE SET day = excluded.day, emails = 5`, company)
	d.Run(t, add, company, 0)
	fold(15)
	d.Run(t, add, company, 1)
	d.Run(t, add, company, 0)
	fold(35)
}

// The use of a day ends at midnight UTC, also where the server's time zone changes its offset on that day.
func TestUse_ResetsAtMidnight(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	conn, err := d.SQL.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	today := storetest.Ask[int](t, d, `SELECT extract(doy FROM now() AT TIME ZONE 'UTC')::int`) - 1
	for _, start := range []int{today, (today + 180) % 360} { // summer time begins or ends at noon
		end := (start + 180) % 360
		if start != today {
			end = today
		}
		if _, err := conn.ExecContext(t.Context(), `SELECT set_config('TimeZone', format('AAA0BBB,%s/12,%s/12', $1::int, $2::int), false)`, start, end); err != nil {
			t.Fatal(err)
		}
		var off string
		if err := conn.QueryRowContext(t.Context(), `
			SELECT coalesce(string_agg(quota || ' ' || (resets_at AT TIME ZONE 'UTC'), ', '), '') FROM email_gateway_use($1, true)
			WHERE resets_at AT TIME ZONE 'UTC' <> date_trunc('day', now() AT TIME ZONE 'UTC') + interval '1 day'`, company).Scan(&off); err != nil || off != "" {
			t.Errorf("summer time from day %d to %d: %s, %v", start, end, off, err)
		}
	}
}
