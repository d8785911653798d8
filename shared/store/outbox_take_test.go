package store_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// TakeDue takes the same number of rows from each lane, the longest waiting ones.
func TestTakeDue_InOrderAndEvenly(t *testing.T) {
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

	first := take(t, d, 2)
	if diff := cmp.Diff([]uuid.UUID{ids[3], ids[4], alone}, idsOf(first)); diff != "" {
		t.Error(diff)
	}
	if e := first[1]; e.HadTask || e.Attempts != 2 || e.Throttles != 1 || len(e.Payload) == 0 {
		t.Errorf("%+v", e)
	}
	if diff := cmp.Diff(ids[:2], idsOf(take(t, d, 2))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(ids[2:3], idsOf(take(t, d, 2))); diff != "" {
		t.Error(diff)
	}
	if n := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE status = 'ENQUEUED' AND enqueued_at IS NOT NULL`); n != 6 || len(liveLanes(t, d)) != 0 {
		t.Errorf("%d enqueued, live: %v", n, liveLanes(t, d))
	}
}

// Concurrent dispatchers never take a row twice.
func TestTakeDue_ManyDispatchers(t *testing.T) {
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
				found, err := s.WaitingLanes(t.Context())
				live := found.Due()
				if err != nil {
					t.Error(err)
					return
				}
				lanes := live[email.QueueNormal]
				if len(lanes) == 0 {
					return
				}
				taken, err := s.TakeDue(t.Context(), slot(), storetest.EvenTakes(lanes, 7))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, e := range taken.Rows {
					times[e.ID]++
				}
				mu.Unlock()
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

// Rows that another session has locked are skipped without waiting.
func TestTakeDue_LeavesLockedRows(t *testing.T) {
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
	if diff := cmp.Diff([]uuid.UUID{free}, idsOf(take(t, d, 1))); diff != "" {
		t.Error(diff)
	}
}

func TestTakeDue_NothingDue(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	for _, lanes := range [][]int64{nil, {}, {1, 2, 3}} {
		taken, err := d.Store.TakeDue(t.Context(), slot(), storetest.EvenTakes(lanes, 10))
		if len(taken.Rows) != 0 || !taken.TakenAt.IsZero() || err != nil {
			t.Errorf("took %v, %v", taken, err)
		}
	}
	if n := batches(t, d); n != 0 {
		t.Errorf("%d batches without rows, want none", n)
	}
}

// A taken email is committed as ENQUEUED when TakeDue returns.
func TestTakeDue_Commits(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, nil)
	run(t, d, `UPDATE email_outbox SET status = 'RETRY_SCHEDULED', enqueued_at = now(), next_at = now() - interval '6 s'`)
	rows := take(t, d, 1)
	if len(rows) != 1 || !rows[0].HadTask {
		t.Fatalf("%+v", rows)
	}
	if r := readOutbox(t, d, id); r.Status != "ENQUEUED" {
		t.Errorf("%+v", r)
	}
	if got, err := d.Store.Advance(t.Context(), storetest.ClaimOf(company, id, uuid.New(), "C")); err != nil || !got.Applied {
		t.Errorf("%+v, %v", got, err)
	}
}

// batches counts the batches that are not confirmed as published.
func batches(t *testing.T, d storetest.Database) int {
	t.Helper()
	return ask[int](t, d, `SELECT count(*) FROM dispatch_batches`)
}

// A batch stays recorded until its slot reports it as published, with the next batch or alone.
func TestTakeDue_Batches(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	one := slot()
	takeOne := func() {
		t.Helper()
		d.Accept(t, company, nil)
		taken, err := d.Store.TakeDue(t.Context(), one, storetest.EvenTakes(liveLanes(t, d), 1))
		if err != nil || len(taken.Rows) != 1 {
			t.Fatalf("%v, %v", taken, err)
		}
		one.Published = taken.TakenAt
	}
	takeOne()
	takeOne() // in place of the first
	if n := batches(t, d); n != 1 {
		t.Errorf("%d batches, want 1", n)
	}
	if err := d.Store.ForgetBatch(t.Context(), one); err != nil || batches(t, d) != 0 {
		t.Errorf("%v; %d batches", err, batches(t, d))
	}
	one.Published = time.Time{} // the last one was never published
	takeOne()
	one.Published = time.Time{}
	takeOne()
	if n := batches(t, d); n != 2 {
		t.Errorf("%d batches, want 2", n)
	}
	if err := d.Store.CleanBatches(t.Context(), time.Hour); err != nil || batches(t, d) != 2 {
		t.Errorf("%v; %d batches", err, batches(t, d))
	}
	if err := d.Store.CleanBatches(t.Context(), 0); err != nil || batches(t, d) != 0 {
		t.Errorf("%v; %d batches", err, batches(t, d))
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	soon, later, claimed, again, locked, moved := d.Accept(t, company, nil), d.Accept(t, company, nil), d.Accept(t, company, nil), d.Accept(t, company, nil), d.Accept(t, company, nil), d.Accept(t, company, nil)
	taken, err := d.Store.TakeDue(t.Context(), slot(), storetest.EvenTakes(liveLanes(t, d), 10))
	if err != nil || len(taken.Rows) != 6 {
		t.Fatalf("%v, %v", taken, err)
	}
	if got, err := d.Store.Advance(t.Context(), storetest.ClaimOf(company, claimed, uuid.New(), "C")); err != nil || !got.Applied {
		t.Fatal(got, err)
	}
	run(t, d, `UPDATE email_outbox SET enqueued_at = now() + interval '1 s' WHERE id = $1`, again) // by another dispatcher
	if _, err := d.Store.Reschedule(t.Context(), outbox.Move{CompanyID: company, ID: moved, SendAt: time.Now().Add(2 * time.Hour), TTL: time.Hour, At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	holdRow(t, d, locked)

	left, err := d.Store.Release(t.Context(), taken.TakenAt,
		[]dispatch.Release{{ID: soon}, {ID: later, Delay: time.Hour}, {ID: claimed}, {ID: again}, {ID: locked}, {ID: moved, Delay: time.Second}})
	if left != 1 || err != nil {
		t.Errorf("%d are left, %v; want the locked one", left, err)
	}
	for id, want := range map[uuid.UUID]string{
		soon: "PENDING 0s", later: "PENDING 1h0m0s", claimed: "PROCESSING 0s", again: "ENQUEUED 0s", locked: "ENQUEUED 0s", moved: "PENDING 2h0m0s",
	} {
		r := readOutbox(t, d, id)
		if got := r.Status + " " + (r.NextIn + 10*time.Second).Truncate(time.Minute).String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if n := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE status = 'PENDING' AND enqueued_at IS NULL`); n != 3 {
		t.Errorf("%d emails without a task, want 3", n)
	}
}

// holdRow locks an outbox row until the test ends.
func holdRow(t *testing.T, d storetest.Database, id uuid.UUID) {
	t.Helper()
	tx, err := d.SQL.BeginTx(context.WithoutCancel(t.Context()), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM email_outbox WHERE id = $1 FOR UPDATE`, id); err != nil {
		t.Fatal(err)
	}
}

// A job is leased, published, and only then PUBLISHED. One whose lease ends is due again.
func TestLeaseJobs(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for range 3 {
		run(t, d, `INSERT INTO email_outbox (id, company_id, lane_id, target, request_id, payload, expires_at)
			SELECT gen_random_uuid(), $1, id, 'mailing.process', 'r', '{"mailingId": "m"}', 'infinity' FROM dispatch_lanes WHERE queue = 'mailing.jobs.process'`, company)
	}
	lease := func(want int) dispatch.Batch {
		t.Helper()
		found, err := d.Store.WaitingLanes(t.Context())
		live := found.Due()
		if err != nil || len(live[email.QueueMailings]) != min(want, 1) {
			t.Fatalf("live %v, %v; want %d jobs", live, err, want)
		}
		lanes := []int64{ask[int64](t, d, `SELECT DISTINCT lane_id FROM email_outbox`)}
		taken, err := d.Store.LeaseJobs(t.Context(), storetest.EvenTakes(lanes, 10))
		if err != nil || len(taken.Rows) != want {
			t.Fatalf("took %v, %v; want %d", taken, err, want)
		}
		return taken
	}
	ids := idsOf(lease(3).Rows)
	lease(0)
	run(t, d, `UPDATE email_outbox SET next_at = next_at - interval '1 h', due_at = due_at - interval '1 h'`)
	lease(3)
	if ages, err := d.Store.OldestDue(t.Context()); err != nil || len(ages) != 1 || ages[0].Age() < time.Hour {
		t.Errorf("jobs that have been due for an hour and are leased again: %+v, %v", ages, err)
	}
	if n := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE status = 'PENDING'`); n != 3 {
		t.Errorf("%d of 3 are PENDING before the confirm", n)
	}
	if err := d.Store.MarkPublished(t.Context(), ids[:1]); err != nil {
		t.Fatal(err)
	}
	if n := ask[int](t, d, `SELECT count(due_at) FROM email_outbox WHERE status = 'PUBLISHED'`); n != 0 {
		t.Error("a published job, which may be returned, keeps the time since which it was due")
	}
	run(t, d, `UPDATE email_outbox SET next_at = next_at - interval '10 s' WHERE status = 'PENDING'`) // the time passes
	run(t, d, `UPDATE email_outbox SET next_at = now() - interval '1 h' WHERE status = 'PENDING'`)
	again := lease(2)
	if left, err := d.Store.Release(t.Context(), again.TakenAt, []dispatch.Release{{ID: again.Rows[0].ID, NextAt: again.Rows[0].NextAt}}); left != 0 || err != nil {
		t.Errorf("%d are left, %v", left, err)
	}
	ages, err := d.Store.OldestDue(t.Context())
	if err != nil || len(ages) != 1 || ages[0].Age() < time.Hour {
		t.Errorf("a job that was due for an hour and released: %+v, %v", ages, err)
	}
	last := lease(1)
	if err := d.Store.MarkPublished(t.Context(), append(ids, idsOf(last.Rows)...)); err != nil {
		t.Fatal(err)
	}
	if n := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE status = 'PUBLISHED' AND processed_at IS NOT NULL`); n != 3 {
		t.Errorf("%d of 3 are PUBLISHED", n)
	}
}

// After its task was dropped an email has no recorded task. A locked row is skipped.
func TestDropTask(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for _, status := range email.Statuses() {
		id, _ := inStatus(t, d, company, status)
		hadTask := status == email.Enqueued || status == email.RetryScheduled
		run(t, d, `UPDATE email_outbox SET enqueued_at = now() WHERE id = $1`, id)
		if locked, err := d.Store.DropTask(t.Context(), id, 0); err != nil || locked {
			t.Errorf("%s: locked %v, %v", status, locked, err)
		}
		want := status
		if status == email.Enqueued {
			want = email.Pending
		}
		if got := readOutbox(t, d, id).Status; got != string(want) {
			t.Errorf("status %s changed to %s", status, got)
		}
		if dropped := ask[bool](t, d, `SELECT enqueued_at IS NULL FROM email_outbox WHERE id = $1`, id); dropped != hadTask {
			t.Errorf("%s: dropped %v", status, dropped)
		}
	}
	id, _ := inStatus(t, d, company, email.Enqueued)
	run(t, d, `UPDATE email_outbox SET enqueued_at = now() WHERE id = $1`, id)
	holdRow(t, d, id)
	if locked, err := d.Store.DropTask(t.Context(), id, 0); err != nil || !locked {
		t.Errorf("a locked row: locked %v, %v", locked, err)
	}
}

// A task that its worker dropped because the email was locked is not counted as lost, whether the
// rescuer returns the email or the dispatcher takes it. The next task of the same email may be lost.
func TestNoteDroppedTask(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	enqueued, _ := inStatus(t, d, company, email.Enqueued)
	retry, _ := inStatus(t, d, company, email.RetryScheduled)
	pending, _ := inStatus(t, d, company, email.Pending)
	late := `UPDATE email_outbox SET enqueued_at = now() - interval '1 min', next_at = now() - interval '1 min' WHERE id <> $1`
	run(t, d, late, pending)
	release := lock(t, d, `SELECT FROM email_outbox FOR UPDATE`)
	for _, id := range []uuid.UUID{enqueued, retry, pending} {
		if err := d.Store.NoteDroppedTask(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if n := ask[int](t, d, `SELECT count(*) FROM dropped_tasks`); n != 2 {
		t.Errorf("%d notes, want none about an email without a task", n)
	}
	release()
	returnAndTake := func(when string, want dispatch.Returned, hadTask bool) {
		t.Helper()
		if got, err := d.Store.ReturnLost(t.Context(), []uuid.UUID{enqueued}, time.Second); err != nil || got != want {
			t.Errorf("%s: returned %+v, %v, want %+v", when, got, err, want)
		}
		lane := ask[int64](t, d, `SELECT lane_id FROM email_outbox WHERE id = $1`, retry)
		batch, err := d.Store.TakeDue(t.Context(), dispatch.Slot{ID: uuid.New()}, storetest.EvenTakes([]int64{lane}, 10))
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range batch.Rows {
			if row.ID == retry && row.HadTask != hadTask {
				t.Errorf("%s: the retry's task is missing: %v", when, row.HadTask)
			}
		}
		if !slices.Contains(idsOf(batch.Rows), retry) {
			t.Errorf("%s: the retry is not taken", when)
		}
	}
	returnAndTake("dropped", dispatch.Returned{Dropped: 1}, false)
	run(t, d, late, pending)
	run(t, d, `UPDATE email_outbox SET status = 'RETRY_SCHEDULED' WHERE id = $1`, retry)
	run(t, d, `UPDATE email_outbox SET status = 'ENQUEUED' WHERE id = $1`, enqueued)
	run(t, d, `DELETE FROM dispatch_batches`)
	returnAndTake("lost", dispatch.Returned{Lost: 1}, true)

	if err := d.Store.CleanBatches(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if n := ask[int](t, d, `SELECT count(*) FROM dropped_tasks`); n != 0 {
		t.Errorf("%d notes are kept", n)
	}
}
