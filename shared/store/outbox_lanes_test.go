package store_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store"
	"email-gateway/shared/store/dispatch"
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
	db := storetest.Connect(t, d, store.Options{})
	plan, read := storetest.BuffersOn(t, db, written(t, "sql.NamedLanes"), 1, pq.Array([]int64{lane}), pq.Array([]string{"-infinity"}), pq.Array([]string{uuid.Nil.String()}))
	if read > 200 {
		t.Errorf("it reads %d buffers:\n%s", read, plan)
	}
	all, err := d.Store.WaitingLanes(t.Context())
	if err != nil || len(all.Lanes) < 10_001 || !all.BreakerClosed {
		t.Errorf("%d lanes, open %t, %v", len(all.Lanes), all.BreakerClosed, err)
	}
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
		{"expired", outbox(`status = 'PENDING', next_at = now() - interval '1 hour', expires_at = now() - interval '1 s'`), true, -1e9, 0},
		{"on the queue", outbox(`status = 'ENQUEUED', enqueued_at = now(), expires_at = now() + interval '1 day'`), true, never, never},
		{"back", outbox(`status = 'PENDING', enqueued_at = NULL`), true, -1e9, 0},
		{"parked", lanes(`parked_until = now() + interval '1 hour'`), true, 59 * minute, 60 * minute},
		{"paused", lanes(`parked_until = NULL, paused_at = now()`), false, 0, 0},
		{"held", lanes(`paused_at = NULL, held_at = now(), held_reason = 'a test'`), false, 0, 0},
		{"released", lanes(`held_at = NULL, held_reason = NULL`), true, -1e9, 0},
	} {
		run(t, d, step.change)
		for what, look := range map[string]func() (dispatch.WaitingLanes, error){
			"probe": func() (dispatch.WaitingLanes, error) {
				return d.Store.ProbeLanes(t.Context(), []dispatch.LaneProbe{{ID: lane}})
			},
			"listing": func() (dispatch.WaitingLanes, error) { return d.Store.WaitingLanes(t.Context()) },
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

// The statements of a wake-up are prepared. A plan that was made on tables with a few rows, which were analyzed then,
// still reads few pages when there are many lanes and rows.
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
			execute(`PREPARE take_due AS ` + written(t, "sql.TakeDue"))
			execute(`PREPARE named_lanes AS ` + written(t, "sql.NamedLanes"))
			execute(`PREPARE wake_lanes AS ` + written(t, "sql.WakeLanes"))
			executions := func(lane int64, company uuid.UUID) []string {
				since := fmt.Sprintf(`'{%d}', '{-infinity}', '{%s}'`, lane, uuid.Nil)
				return []string{
					fmt.Sprintf(`take_due(1, '%s', '-infinity', %s, '{10}')`, uuid.Nil, since),
					fmt.Sprintf(`named_lanes(1, %s)`, since),
					fmt.Sprintf(`wake_lanes('channel', 390, 1, '{%s}', '{email:send}', '{%s}')`, company, uuid.Nil),
				}
			}
			for _, execution := range executions(1, uuid.New()) {
				execute(`EXECUTE ` + execution)
			}
			storetest.FillEmails(t, d, 20_000)
			run(t, d, `WITH company AS (
					INSERT INTO companies (id, name, default_from) SELECT gen_random_uuid(), 'crowd ' || n, 'a@acme.example' FROM generate_series(1, 5000) n RETURNING id
				) INSERT INTO dispatch_lanes (company_id, queue) SELECT id, 'email:send' FROM company`)
			company = d.Company(t)
			lane := ask[int64](t, d, `SELECT lane_id FROM email_outbox WHERE id = '`+d.Accept(t, company, nil).String()+`'`)
			for _, execution := range executions(lane, company) {
				execute(`BEGIN`)
				plan, read := storetest.BuffersOn(t, conn, `EXECUTE `+execution)
				execute(`ROLLBACK`)
				if read > 200 {
					t.Errorf("%s reads %d buffers:\n%s", execution, read, plan)
				}
			}
		})
	}
}
