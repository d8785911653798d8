package store_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

const lost = 5 * time.Second

func liveLanes(t *testing.T, d storetest.Database) []int64 {
	t.Helper()
	lanes, err := d.Store.LiveLanes(t.Context(), lost)
	if err != nil {
		t.Fatal(err)
	}
	return lanes[email.QueueNormal]
}

// dispatch takes what is due in all live lanes, says that all of it was enqueued and
// returns it.
func dispatch(t *testing.T, d storetest.Database, perLane int) []store.DueRow {
	t.Helper()
	var given []store.DueRow
	n, err := d.Store.DispatchDue(t.Context(), liveLanes(t, d), perLane, lost, func(_ context.Context, due []store.DueRow) (store.Dispatched, error) {
		given = due
		return store.Dispatched{Enqueued: idsOf(due)}, nil
	})
	if err != nil || n != len(given) {
		t.Fatalf("took %d, gave %d, %v", n, len(given), err)
	}
	return given
}

func idsOf(due []store.DueRow) []uuid.UUID {
	ids := make([]uuid.UUID, len(due))
	for i, e := range due {
		ids[i] = e.ID
	}
	return ids
}

func TestLiveLanes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change string // of the one email that waits
		want   bool
	}{
		"due":                  {`SELECT 1`, true},
		"due later":            {`UPDATE email_outbox SET next_at = now() + interval '1 h'`, false},
		"expired":              {`UPDATE email_outbox SET expires_at = now()`, false},
		"on the queue":         {`UPDATE email_outbox SET status = 'ENQUEUED'`, false},
		"sent":                 {`UPDATE email_outbox SET status = 'SENT', processed_at = now()`, false},
		"its retry is due":     {`UPDATE email_outbox SET status = 'RETRY_SCHEDULED', next_at = now() - interval '1 s'`, false},
		"its retry is lost":    {`UPDATE email_outbox SET status = 'RETRY_SCHEDULED', next_at = now() - interval '6 s'`, true},
		"lane paused":          {`UPDATE dispatch_lanes SET paused_at = now()`, false},
		"lane parked":          {`UPDATE dispatch_lanes SET parked_until = now() + interval '1 s'`, false},
		"lane was parked":      {`UPDATE dispatch_lanes SET parked_until = now()`, true},
		"company suspended":    {`UPDATE companies SET suspended_at = now()`, false},
		"in a lane of its own": {`UPDATE dispatch_lanes SET mailing_id = gen_random_uuid()`, true},
		"on another queue":     {`UPDATE email_outbox SET lane_id = (SELECT id FROM dispatch_lanes WHERE queue = 'email:send:low' ORDER BY id LIMIT 1)`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			id := d.Accept(t, d.Company(t), nil)
			d.Company(t) // whose lanes are empty
			run(t, d, tt.change)
			if got := len(liveLanes(t, d)) == 1; got != tt.want {
				t.Errorf("live: %v", liveLanes(t, d))
			}
			// A lane is live exactly when there is something in it to take.
			lanes := []int64{ask[int64](t, d, `SELECT lane_id FROM email_outbox`)}
			open := ask[bool](t, d, `SELECT NOT EXISTS (SELECT FROM dispatch_lanes l JOIN companies c ON c.id = l.company_id
				WHERE l.paused_at IS NOT NULL OR l.parked_until > now() OR c.suspended_at IS NOT NULL OR l.id = $1 AND l.queue <> 'email:send')`, lanes[0])
			n, err := d.Store.DispatchDue(t.Context(), lanes, 10, lost, func(_ context.Context, due []store.DueRow) (store.Dispatched, error) {
				if due[0].ID != id {
					t.Errorf("given %v", due)
				}
				return store.Dispatched{}, nil
			})
			if err != nil || open && (n == 1) != tt.want {
				t.Errorf("took %d, %v", n, err)
			}
		})
	}
}

// A bulk job is found like an email, in the lane of its own queue; the broker's
// confirmation is its end.
func TestDispatchDue_OfAJob(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	run(t, d, `INSERT INTO email_outbox (id, company_id, lane_id, target, request_id, payload, expires_at)
		SELECT gen_random_uuid(), $1, id, 'mailing.process', 'r', '{"mailingId": "m"}', 'infinity' FROM dispatch_lanes WHERE queue = 'mailing.jobs.process'`, company)
	live, err := d.Store.LiveLanes(t.Context(), lost)
	lanes := live[email.QueueMailings]
	if err != nil || len(lanes) != 1 || len(live) != 1 {
		t.Fatalf("lanes %v, %v", live, err)
	}
	for _, want := range []int{1, 0} {
		n, err := d.Store.DispatchDue(t.Context(), lanes, 10, lost, func(_ context.Context, due []store.DueRow) (store.Dispatched, error) {
			return store.Dispatched{Enqueued: idsOf(due)}, nil
		})
		if err != nil || n != want {
			t.Fatalf("took %d, %v", n, err)
		}
	}
	if status := ask[string](t, d, `SELECT status FROM email_outbox WHERE processed_at IS NOT NULL`); status != "PUBLISHED" {
		t.Errorf("it is %s", status)
	}
}

func TestLiveLanes_OfManyCompanies(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	for range 5 {
		company := d.Company(t)
		for range 3 {
			d.Accept(t, company, nil)
		}
		d.Accept(t, company, func(e *store.NewEmail) { e.Priority = 1 })
	}
	live, err := d.Store.LiveLanes(t.Context(), lost)
	if err != nil {
		t.Fatal(err)
	}
	for _, queue := range email.Queues() {
		want := 5
		if queue == email.QueueLow {
			want = 0
		}
		if lanes := live[queue]; len(lanes) != want || !slices.IsSorted(lanes) {
			t.Errorf("%s: %v", queue, lanes)
		}
	}
}

// From each lane the same number, those that have waited longest.
func TestDispatchDue_InOrderAndEvenly(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	busy, quiet := d.Company(t), d.Company(t)
	var ids []uuid.UUID
	for range 5 {
		ids = append(ids, d.Accept(t, busy, nil))
	}
	alone := d.Accept(t, quiet, nil)
	run(t, d, `UPDATE email_outbox SET next_at = now() - interval '1 h' WHERE id = $1`, ids[3])
	run(t, d, `UPDATE email_outbox SET status = 'RETRY_SCHEDULED', attempts = 2, throttles = 1, next_at = now() - interval '10 s' WHERE id = $1`, ids[4])

	first := dispatch(t, d, 2)
	if diff := cmp.Diff([]uuid.UUID{ids[3], ids[4], alone}, idsOf(first)); diff != "" {
		t.Error(diff)
	}
	if e := first[1]; e.Status != email.RetryScheduled || e.Attempts != 2 || e.Throttles != 1 || len(e.Payload) == 0 {
		t.Errorf("%+v", e)
	}
	if diff := cmp.Diff(ids[:2], idsOf(dispatch(t, d, 2))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(ids[2:3], idsOf(dispatch(t, d, 2))); diff != "" {
		t.Error(diff)
	}
	if n := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE status = 'ENQUEUED' AND enqueued_at IS NOT NULL`); n != 6 || len(liveLanes(t, d)) != 0 {
		t.Errorf("%d enqueued, live: %v", n, liveLanes(t, d))
	}
}

// Dispatchers at work at the same time never take a row twice.
func TestDispatchDue_ManyDispatchers(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	const n = 1000
	accepter := d.Store.NewAccepter()
	var wg sync.WaitGroup
	for range 4 {
		company := d.Company(t)
		for range n / 4 {
			wg.Go(func() {
				if err := accepter.Accept(t.Context(), storetest.NewEmail(company, nil)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	var mu sync.Mutex
	times := map[uuid.UUID]int{}
	start := make(chan struct{})
	for range 4 {
		s := open(t, d.URL, store.Options{MaxConns: 2})
		wg.Go(func() {
			<-start
			for {
				live, err := s.LiveLanes(t.Context(), lost)
				if err != nil {
					t.Error(err)
					return
				}
				lanes := live[email.QueueNormal]
				if len(lanes) == 0 {
					return
				}
				_, err = s.DispatchDue(t.Context(), lanes, 7, lost, func(_ context.Context, due []store.DueRow) (store.Dispatched, error) {
					mu.Lock()
					defer mu.Unlock()
					for _, e := range due {
						times[e.ID]++
					}
					return store.Dispatched{Enqueued: idsOf(due)}, nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	close(start)
	wg.Wait()
	for id, n := range times {
		if n != 1 {
			t.Errorf("%s was taken %d times", id, n)
		}
	}
	if len(times) != n {
		t.Errorf("%d of %d taken", len(times), n)
	}
}

// Rows that another one holds are left to it, and cost no waiting.
func TestDispatchDue_LeavesLockedRows(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	held, free := d.Accept(t, company, nil), d.Accept(t, company, nil)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM email_outbox WHERE id = $1 FOR UPDATE`, held); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uuid.UUID{free}, idsOf(dispatch(t, d, 1))); diff != "" {
		t.Error(diff)
	}
}

func TestDispatchDue_RecordsWhatEnqueueDid(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	enqueued, busy, unnamed := d.Accept(t, company, nil), d.Accept(t, company, nil), d.Accept(t, company, nil)
	n, err := d.Store.DispatchDue(t.Context(), liveLanes(t, d), 10, lost, func(context.Context, []store.DueRow) (store.Dispatched, error) {
		return store.Dispatched{Enqueued: []uuid.UUID{enqueued}, Busy: []uuid.UUID{busy}, BusyFor: time.Hour}, nil
	})
	if n != 3 || err != nil {
		t.Errorf("took %d, %v", n, err)
	}
	for id, want := range map[uuid.UUID]string{enqueued: "ENQUEUED 0s", busy: "PENDING 1h0m0s", unnamed: "PENDING 0s"} {
		r := readOutbox(t, d, id)
		if got := r.Status + " " + (r.NextIn + 10*time.Second).Truncate(time.Minute).String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// What the queue says is passed on as it is: it is not the database that is away.
func TestDispatchDue_TheQueueFails(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	id := d.Accept(t, d.Company(t), nil)
	away := errors.New("redis is away")
	n, err := d.Store.DispatchDue(t.Context(), liveLanes(t, d), 10, lost, func(context.Context, []store.DueRow) (store.Dispatched, error) {
		return store.Dispatched{Enqueued: []uuid.UUID{id}}, away
	})
	if n != 0 || !errors.Is(err, away) || errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("took %d, %v", n, err)
	}
	if r := readOutbox(t, d, id); r.Status != "PENDING" {
		t.Errorf("%+v", r)
	}
}

func TestDispatchDue_NothingDue(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	for _, lanes := range [][]int64{nil, {}, {1, 2, 3}} {
		n, err := d.Store.DispatchDue(t.Context(), lanes, 10, lost, func(context.Context, []store.DueRow) (store.Dispatched, error) {
			t.Error("asked to enqueue nothing")
			return store.Dispatched{}, nil
		})
		if n != 0 || err != nil {
			t.Errorf("took %d, %v", n, err)
		}
	}
}

// The worker can be faster than the dispatcher's commit: its claim waits, and then
// finds the email enqueued.
func TestDispatchDue_ClaimDuringTheRound(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, nil)
	claimed := make(chan store.Advanced, 1)
	_, err := d.Store.DispatchDue(t.Context(), liveLanes(t, d), 1, lost, func(context.Context, []store.DueRow) (store.Dispatched, error) {
		go func() {
			got, err := d.Store.Advance(t.Context(), claimOf(company, id, uuid.New(), "C"))
			if err != nil {
				t.Error(err)
			}
			claimed <- got
		}()
		waitBlocked(t, d, 1)
		return store.Dispatched{Enqueued: []uuid.UUID{id}}, nil
	})
	if got := <-claimed; err != nil || !got.Applied {
		t.Errorf("%+v, %v", got, err)
	}
	if r := readOutbox(t, d, id); r.Status != "PROCESSING" {
		t.Errorf("%+v", r)
	}
}

func TestReturnToPending(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for _, status := range email.Statuses() {
		id, _ := inStatus(t, d, company, status)
		if err := d.Store.ReturnToPending(t.Context(), id); err != nil {
			t.Error(err)
		}
		want := status
		if status == email.Enqueued {
			want = email.Pending
		}
		if got := readOutbox(t, d, id).Status; got != string(want) {
			t.Errorf("%s became %s", status, got)
		}
	}
}

func TestOverdue(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	overdue := map[uuid.UUID]bool{}
	for _, status := range email.Statuses() {
		id, _ := inStatus(t, d, company, status)
		run(t, d, `UPDATE email_outbox SET expires_at = now() - interval '1 s' WHERE id = $1`, id)
		if status.Claimable() {
			overdue[id] = true
		}
	}
	d.Accept(t, company, nil)
	listed, err := d.Store.Overdue(t.Context(), 100)
	if err != nil || len(listed) != len(overdue) {
		t.Errorf("%d overdue, want %d: %v", len(listed), len(overdue), err)
	}
	for _, e := range listed {
		if !overdue[e.ID] || !about(time.Until(e.ExpiresAt), 0) {
			t.Errorf("%v is %s", e, readOutbox(t, d, e.ID).Status)
		}
		apply(t, d, expireOf(e.ID))
	}
	if left, err := d.Store.Overdue(t.Context(), 100); len(left) != 0 || err != nil {
		t.Errorf("%v, %v", left, err)
	}
}
