package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// crowd adds lanes of companies, each with one email that is due in an hour.
func crowd(t *testing.T, d storetest.Database, lanes int) {
	t.Helper()
	like := d.Accept(t, d.Company(t), nil)
	run(t, d, `
		WITH company AS (
			INSERT INTO companies (id, name, default_from) SELECT gen_random_uuid(), 'crowd ' || n, default_from FROM companies, generate_series(1, $1) n RETURNING id
		), lane AS (
			INSERT INTO dispatch_lanes (company_id, queue) SELECT id, 'email:send' FROM company RETURNING id, company_id
		)
		INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at, next_at)
		SELECT gen_random_uuid(), lane.company_id, lane.id, e.request_id, e.payload, e.sender, e.html, e.html_sha256, e.checker_version,
		       now() + interval '1 day', now() + interval '1 hour'
		FROM lane, email_outbox e WHERE e.id = $2`, lanes, like)
	run(t, d, `ANALYZE email_outbox`)
	run(t, d, `ANALYZE dispatch_lanes`)
	run(t, d, `ANALYZE companies`)
}

// A look costs what it probes, however many lanes wait for later.
func TestProbeLanes_BesideManyLanes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	crowd(t, d, 10_000)
	company := d.Company(t)
	due := d.Accept(t, company, nil)
	lane := ask[int64](t, d, `SELECT lane_id FROM email_outbox WHERE id = '`+due.String()+`'`)
	plan := explainRun(t, d, written(t, "dispatch.namedLanesSQL"), pq.Array([]int64{lane}), pq.Array([]string{"-infinity"}), pq.Array([]string{uuid.Nil.String()}), 1)
	if n := buffers(t, plan); n > 200 {
		t.Errorf("it reads %d buffers:\n%s", n, plan)
	}
	all, err := d.Store.WaitingLanes(t.Context())
	if err != nil || len(all.Lanes) < 10_001 || !all.BreakerClosed {
		t.Errorf("%d lanes, open %t, %v", len(all.Lanes), all.BreakerClosed, err)
	}
}

func explainRun(t *testing.T, d storetest.Database, statement string, parameters ...any) (plan string) {
	t.Helper()
	return explainOn(t, storetest.Connect(t, d, store.Options{}), statement, parameters...)
}

// explainOn runs a statement on a connection, or on one of a pool, and returns its plan.
func explainOn(t *testing.T, on interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}, statement string, parameters ...any,
) (plan string) {
	t.Helper()
	rows, err := on.QueryContext(t.Context(), `EXPLAIN (ANALYZE, BUFFERS) `+statement, parameters...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		plan += line + "\n"
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan
}

func buffers(t *testing.T, plan string) int {
	t.Helper()
	found := regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`).FindStringSubmatch(plan)
	if found == nil {
		t.Fatalf("no buffers in\n%s", plan)
	}
	hit, _ := strconv.Atoi(found[1])
	read, _ := strconv.Atoi(found[2])
	return hit + read
}

// What a probe says of a lane follows what happens to its rows and to the lane. A probe returns open lanes without rows too, a
// listing does not if the lane has no waiting row at all.
func TestProbeLanes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, nil)
	lane := ask[int64](t, d, `SELECT lane_id FROM email_outbox WHERE id = '`+id.String()+`'`)
	outbox := func(set string) string { return fmt.Sprintf(`UPDATE email_outbox SET %s WHERE id = '%s'`, set, id) }
	lanes := func(set string) string { return fmt.Sprintf(`UPDATE dispatch_lanes SET %s WHERE id = %d`, set, lane) }
	const minute = 60
	never := math.Inf(1)
	for _, step := range []struct {
		name, change string
		open         bool
		least, most  float64 // of Wait
	}{
		{"due", outbox(`next_at = now() - interval '1 minute'`), true, -1e9, 0},
		{"later", outbox(`next_at = now() + interval '1 hour'`), true, 59 * minute, 60 * minute},
		{"a task on the queue", outbox(`status = 'RETRY_SCHEDULED', enqueued_at = now(), next_at = now() + interval '1 hour'`), true, 59 * minute, 60*minute + 5},
		{"a task that is late", outbox(`next_at = now() - interval '6 s'`), true, -1e9, 0},
		{"a retry without a task", outbox(`enqueued_at = NULL, next_at = now() + interval '1 hour'`), true, 59 * minute, 60 * minute},
		{"expired", outbox(`status = 'PENDING', next_at = now() - interval '1 hour', expires_at = now() - interval '1 s'`), true, never, never},
		{"on the queue", outbox(`status = 'ENQUEUED', enqueued_at = now(), expires_at = now() + interval '1 day'`), true, never, never},
		{"back", outbox(`status = 'PENDING', enqueued_at = NULL`), true, -1e9, 0},
		{"parked", lanes(`parked_until = now() + interval '1 hour'`), true, 59 * minute, 60 * minute},
		{"paused", lanes(`parked_until = NULL, paused_at = now()`), false, 0, 0},
		{"held", lanes(`paused_at = NULL, held_at = now(), held_reason = 'a test'`), false, 0, 0},
		{"released", lanes(`held_at = NULL, held_reason = NULL`), true, -1e9, 0},
	} {
		run(t, d, step.change)
		for what, look := range map[string]func() (store.WaitingLanes, error){
			"probe": func() (store.WaitingLanes, error) {
				return d.Store.ProbeLanes(t.Context(), []store.LaneProbe{{ID: lane}})
			},
			"listing": func() (store.WaitingLanes, error) { return d.Store.WaitingLanes(t.Context()) },
		} {
			got, err := look()
			if err != nil {
				t.Fatal(err)
			}
			if found := step.open && (what == "probe" || step.name != "on the queue"); (len(got.Lanes) == 1) != found {
				t.Errorf("%s, %s: %+v", step.name, what, got.Lanes)
				continue
			} else if !found {
				continue
			}
			if got.Lanes[0].Wait > step.most || got.Lanes[0].Wait < step.least-minute || got.Lanes[0].CompanyID != company {
				t.Errorf("%s, %s: %+v", step.name, what, got.Lanes[0])
			}
		}
	}
}

// New rows are found without their lane's name.
func TestNewLanes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	id := d.Accept(t, d.Company(t), nil)
	lane := ask[int64](t, d, `SELECT lane_id FROM email_outbox WHERE id = '`+id.String()+`'`)
	want := func(when string, within time.Duration, want ...int64) {
		t.Helper()
		if got, err := d.Store.NewLanes(t.Context(), within); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: lanes %v, want %v, %v", when, got, want, err)
		}
	}
	want("a new row", time.Hour, lane)
	want("made before", -time.Minute)
	run(t, d, `UPDATE email_outbox SET status = 'ENQUEUED'`)
	want("on the queue", time.Hour)
}

// Rows whose ids are ahead of the clock do not hide new ones, however many there are.
func TestNewLanes_IDsAheadOfTheClock(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	crowd(t, d, 6000) // with ids of all times to come
	id := d.Accept(t, d.Company(t), nil)
	lane := ask[int64](t, d, `SELECT lane_id FROM email_outbox WHERE id = '`+id.String()+`'`)
	got, err := d.Store.NewLanes(t.Context(), time.Hour)
	if err != nil || !slices.Contains(got, lane) {
		t.Errorf("%d lanes without that of the new row, %v", len(got), err)
	}
}

// since is before the rows that are due at a time as seen from now.
func since(ago time.Duration) store.Position { return store.Position{NextAt: time.Now().Add(ago)} }

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
	probe := store.LaneProbe{ID: lane}
	take := func(since store.Position, want int) {
		t.Helper()
		batch, err := d.Store.TakeDue(t.Context(), slot(), []store.LaneTurn{{LaneProbe: store.LaneProbe{ID: lane, Since: since}, Most: 10}})
		if err != nil || len(batch.Rows) != want {
			t.Errorf("took %d rows, want %d, %v", len(batch.Rows), want, err)
		}
	}
	take(store.Position{}, 1) // the second
	found, err := d.Store.ProbeLanes(t.Context(), []store.LaneProbe{probe})
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
	var first store.Position
	for took := 0; took < len(ids); took += 10 {
		batch, err := d.Store.TakeDue(t.Context(), slot(), []store.LaneTurn{{LaneProbe: store.LaneProbe{ID: lane, Since: first}, Most: 10}})
		if err != nil || len(batch.Rows) != 10 || batch.Rows[0].ID != ids[took] {
			t.Fatalf("took %d rows after %d, %v", len(batch.Rows), took, err)
		}
		looked, err := d.Store.ProbeLanes(t.Context(), []store.LaneProbe{{ID: lane, Since: first}})
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
	for _, drained := range []bool{false, true} {
		batch, err := d.Store.TakeDue(t.Context(), slot(), store.EvenTurns([]int64{lane}, 2990))
		if err != nil || len(batch.Rows) == 0 {
			t.Fatalf("took %d rows, %v", len(batch.Rows), err)
		}
		looked, err := d.Store.ProbeLanes(t.Context(), []store.LaneProbe{{ID: lane}})
		if err != nil || len(looked.Lanes) != 1 || math.IsInf(looked.Lanes[0].Wait, 1) != drained {
			t.Fatalf("%+v, %v", looked, err)
		}
		since := looked.Lanes[0].Since
		for statement, more := range map[string][]any{
			"dispatch.takeDueSQL": {pq.Array([]int64{1}), 1, uuid.New(), time.Now()}, "dispatch.namedLanesSQL": {1},
		} {
			read := func(nextAt string, id uuid.UUID) int {
				parameters := append([]any{pq.Array([]int64{lane}), pq.Array([]string{nextAt}), pq.Array([]string{id.String()})}, more...)
				return buffers(t, explainRun(t, d, written(t, statement), parameters...))
			}
			bounded := read(since.NextAt.UTC().Format(time.RFC3339Nano), since.ID)
			if whole := read("-infinity", uuid.Nil); bounded > 200 || whole < 2000 {
				t.Errorf("%s, drained %t: %d buffers are read from the bound on, %d from the start on", statement, drained, bounded, whole)
			}
		}
	}
}

// The statements of a wake-up are prepared. A plan that was made on tables with a few rows, which were analyzed then, still reads few
// pages when there are many lanes and rows.
func TestWakeUp_PlansMadeOnSmallTables(t *testing.T) {
	t.Parallel()
	for _, emails := range []int{2, 10, 100} {
		t.Run(strconv.Itoa(emails), func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company := d.Company(t)
			for range emails {
				d.Accept(t, company, nil)
			}
			d.Run(t, `VACUUM ANALYZE`)
			conn, err := storetest.Connect(t, d, store.Options{}).Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			execute := func(statement string) {
				t.Helper()
				if _, err := conn.ExecContext(t.Context(), statement); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
			execute(`SET plan_cache_mode = force_generic_plan`)
			execute(`PREPARE take_due AS ` + written(t, "dispatch.takeDueSQL"))
			execute(`PREPARE named_lanes AS ` + written(t, "dispatch.namedLanesSQL"))
			execute(`PREPARE wake_lanes AS ` + written(t, "lane.wakeLanesSQL"))
			executions := func(lane int64, company uuid.UUID) []string {
				since := fmt.Sprintf(`'{%d}', '{-infinity}', '{%s}'`, lane, uuid.Nil)
				return []string{
					fmt.Sprintf(`take_due(%s, '{10}', 1, '%s', '-infinity')`, since, uuid.Nil),
					fmt.Sprintf(`named_lanes(%s, 1)`, since),
					fmt.Sprintf(`wake_lanes('channel', '{%s}', '{email:send}', 390, '{%s}', 1)`, company, uuid.Nil),
				}
			}
			for _, execution := range executions(1, uuid.New()) {
				execute(`EXECUTE ` + execution)
			}
			storetest.Grow(t, d, 20_000)
			run(t, d, `WITH company AS (
					INSERT INTO companies (id, name, default_from) SELECT gen_random_uuid(), 'crowd ' || n, 'a@acme.example' FROM generate_series(1, 5000) n RETURNING id
				) INSERT INTO dispatch_lanes (company_id, queue) SELECT id, 'email:send' FROM company`)
			company = d.Company(t)
			lane := ask[int64](t, d, `SELECT lane_id FROM email_outbox WHERE id = '`+d.Accept(t, company, nil).String()+`'`)
			for _, execution := range executions(lane, company) {
				execute(`BEGIN`)
				plan := explainOn(t, conn, `EXECUTE `+execution)
				execute(`ROLLBACK`)
				if n := buffers(t, plan); n > 200 {
					t.Errorf("%s reads %d buffers:\n%s", execution, n, plan)
				}
			}
		})
	}
}
