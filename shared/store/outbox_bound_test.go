package store_test

import (
	"database/sql"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/store/storetest"
)

// since is before the rows that are due at a time as seen from now.
func since(ago time.Duration) dispatch.Position {
	return dispatch.Position{NextAt: time.Now().Add(ago)}
}

// The bound of a lane is not passed by a row that another transaction has locked, and what lies
// before a bound is found without it.
func TestTakeDue_Bound(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	first, second := d.Accept(t, company, nil), d.Accept(t, company, nil)
	run(t, d, `UPDATE email_outbox SET next_at = now() - interval '1 hour' WHERE id = $1`, first)
	run(t, d, `UPDATE email_outbox SET next_at = now() - interval '1 minute' WHERE id = $1`, second)
	lane := ask[int64](t, d, `SELECT lane_id FROM email_outbox WHERE id = '`+first.String()+`'`)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM email_outbox WHERE id = $1 FOR UPDATE`, first); err != nil {
		t.Fatal(err)
	}
	probe := dispatch.LaneProbe{ID: lane}
	take := func(since dispatch.Position, want int) {
		t.Helper()
		batch, err := d.Store.TakeDue(t.Context(), slot(), []dispatch.LaneTake{{LaneProbe: dispatch.LaneProbe{ID: lane, Since: since}, Limit: 10}})
		if err != nil || len(batch.Rows) != want {
			t.Errorf("took %d rows, want %d, %v", len(batch.Rows), want, err)
		}
	}
	take(dispatch.Position{}, 1) // the second
	found, err := d.Store.ProbeLanes(t.Context(), []dispatch.LaneProbe{probe})
	if err != nil || len(found.Lanes) != 1 || time.Since(found.Lanes[0].Since.NextAt) < 30*time.Minute {
		t.Fatalf("%+v, %v", found.Lanes, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	take(since(-time.Minute), 0) // beyond it
	take(found.Lanes[0].Since, 1)
}

// A bound lies among rows that are due at the same time, as those of a scheduled mailing are. The bound is what the look
// says of the lane.
func TestTakeDue_BoundAmongRowsOfOneTime(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	ids := make([]uuid.UUID, 20)
	for i := range ids {
		ids[i] = d.Accept(t, company, nil)
	}
	run(t, d, `UPDATE email_outbox SET next_at = date_trunc('second', now()) - interval '1 minute'`)
	lane := ask[int64](t, d, `SELECT DISTINCT lane_id FROM email_outbox`)
	var first dispatch.Position
	for took := 0; took < len(ids); took += 10 {
		batch, err := d.Store.TakeDue(t.Context(), slot(), []dispatch.LaneTake{{LaneProbe: dispatch.LaneProbe{ID: lane, Since: first}, Limit: 10}})
		if err != nil || len(batch.Rows) != 10 || batch.Rows[0].ID != ids[took] {
			t.Fatalf("took %d rows after %d, %v", len(batch.Rows), took, err)
		}
		looked, err := d.Store.ProbeLanes(t.Context(), []dispatch.LaneProbe{{ID: lane, Since: first}})
		if err != nil || len(looked.Lanes) != 1 {
			t.Fatalf("after %d: %+v, %v", took, looked, err)
		}
		first = looked.Lanes[0].Since
		if took == 0 && first.ID != ids[10] {
			t.Errorf("the lane begins at %v, want %s", first, ids[10])
		}
	}
	if age := time.Since(first.NextAt); age > 30*time.Second || first.ID != uuid.Nil {
		t.Errorf("the empty lane begins at %v", first)
	}
}

// A session that keeps an old snapshot keeps the index entries of all rows that were taken. Takes and probes read them from the
// lane's start on, and none from its bound on, though all rows are due at the same time. An empty lane has a bound too.
func TestTakeDue_BoundBesideAnOldSnapshot(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	like := d.Accept(t, d.Company(t), nil)
	run(t, d, `UPDATE email_outbox SET next_at = now() - interval '1 minute'`)
	run(t, d, `
		INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at, next_at)
		SELECT gen_random_uuid(), company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at, next_at
		FROM email_outbox, generate_series(1, 3000) WHERE id = $1`, like)
	lane := ask[int64](t, d, `SELECT DISTINCT lane_id FROM email_outbox`)
	snapshot, err := d.SQL.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Rollback()
	if _, err := snapshot.ExecContext(t.Context(), `SELECT count(*) FROM email_outbox`); err != nil {
		t.Fatal(err)
	}
	db := storetest.Connect(t, d, store.Options{})
	for _, drained := range []bool{false, true} {
		batch, err := d.Store.TakeDue(t.Context(), slot(), storetest.EvenTakes([]int64{lane}, 2990))
		if err != nil || len(batch.Rows) == 0 {
			t.Fatalf("took %d rows, %v", len(batch.Rows), err)
		}
		looked, err := d.Store.ProbeLanes(t.Context(), []dispatch.LaneProbe{{ID: lane}})
		if err != nil || len(looked.Lanes) != 1 || math.IsInf(looked.Lanes[0].Wait, 1) != drained {
			t.Fatalf("%+v, %v", looked, err)
		}
		since := looked.Lanes[0].Since
		for statement, parameters := range map[string]func(position ...any) []any{
			"sql.TakeDue": func(position ...any) []any {
				return slices.Concat([]any{1, uuid.New(), time.Now()}, position, []any{pq.Array([]int64{1})})
			},
			"sql.NamedLanes": func(position ...any) []any { return slices.Concat([]any{1}, position) },
		} {
			read := func(nextAt string, id uuid.UUID) int {
				position := parameters(pq.Array([]int64{lane}), pq.Array([]string{nextAt}), pq.Array([]string{id.String()}))
				_, n := storetest.BuffersOn(t, db, written(t, statement), position...)
				return n
			}
			bounded := read(since.NextAt.UTC().Format(time.RFC3339Nano), since.ID)
			if whole := read("-infinity", uuid.Nil); bounded > 200 || whole < 2000 {
				t.Errorf("%s, drained %t: %d buffers are read from the bound on, %d from the start on", statement, drained, bounded, whole)
			}
		}
	}
}
