package event_test

import (
	"testing"
	"time"

	"email-gateway/shared/store/event"
	"email-gateway/shared/store/storetest"
)

// TestSearch: the cursors before and behind a time enclose all events of the time, with at most the tolerance
// around them, also where transactions committed late, and reading a few rows of a large feed.
func TestSearch(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other, s := d.Company(t), d.Company(t), open(t, d, "test")
	if c, err := s.Before(t.Context(), company, time.Now()); err != nil || c.Position != 0 {
		t.Errorf("an empty feed: %v, %v", c, err)
	}
	// One row per minute for each of two companies; each tenth was written by a transaction that had
	// begun 50 minutes before.
	const rows = 20_000
	d.Run(t, `
INSERT INTO event_feed (company_id, position, email_ids, first_seqs, last_seqs, created_at)
SELECT CASE WHEN n % 2 = 0 THEN $1::uuid ELSE $2 END, n, ARRAY[gen_random_uuid()], '{1}', '{1}',
    '2026-01-01 00:00Z'::timestamptz + n / 2 * interval '1 min' - CASE WHEN n % 20 = 0 THEN interval '50 min' ELSE '0' END
FROM generate_series(1, $3::int) n`, company, other, rows)
	d.Run(t, `UPDATE event_positions SET newest = $1`, rows)
	d.Run(t, `ANALYZE event_feed`)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, minutes := range []int{-100, 0, 1, 59, 60, 61, 999, 5000, 5001, 9998, 9999, 10_000, 20_000} {
		at := begin.Add(time.Duration(minutes) * time.Minute)
		before, err := s.Before(t.Context(), company, at)
		if err != nil {
			t.Fatal(err)
		}
		after, err := s.After(t.Context(), company, at)
		if err != nil {
			t.Fatal(err)
		}
		first := storetest.Ask[int64](t, d, `SELECT coalesce(min(position), $3) FROM event_feed WHERE company_id = $1 AND created_at >= $2`, company, at, rows+1)
		last := storetest.Ask[int64](t, d, `SELECT coalesce(max(position), 0) FROM event_feed WHERE company_id = $1 AND created_at < $2`, company, at)
		if before.Position >= first || after.Position < last {
			t.Errorf("minute %d: events from %d on, up to %d; found %d and %d", minutes, first, last, before.Position, after.Position)
		}
		if first-before.Position > 2*(60+50)+2 && minutes <= 10_000 || after.Position-last > 2*(60+50)+2 {
			t.Errorf("minute %d: the cursors %d and %d are far from %d and %d", minutes, before.Position, after.Position, first, last)
		}
	}
	d.Run(t, `DELETE FROM event_feed WHERE position <= 1000`)
	d.Run(t, `UPDATE event_positions SET deleted = 1000`)
	if c, err := s.Before(t.Context(), company, begin); err != nil || c != event.Behind(1000) {
		t.Errorf("before the history: %v, %v", c, err)
	}
	plan, read := storetest.Buffers(t, d.SQL, event.BeforeSQL, company, begin.Add(5000*time.Minute))
	if read > 200 {
		t.Errorf("%d buffers:\n%s", read, plan)
	}
}
