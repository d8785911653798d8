package store_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/storetest"
)

// A wake-up names the lanes of its companies, or none if there are too many.
func TestWakeLanes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	listener := listenTo(t, d)
	wakeUntilReceived(t, d, listener)
	_, _ = listener.Named()
	company := d.Company(t)
	normal := ask[int64](t, d, `SELECT id FROM dispatch_lanes WHERE queue = 'email:send'`)
	if err := d.Store.WakeLanes(t.Context(), []lane.Lanes{{Company: company, Queue: "email:send"}}); err != nil {
		t.Fatal(err)
	}
	receiveUntil(t, listener, func(lanes []int64, _ bool) bool { return len(lanes) == 1 && lanes[0] == normal })
	if err := d.Store.WakeLanes(t.Context(), []lane.Lanes{{Company: company}}); err != nil {
		t.Fatal(err)
	}
	all := ask[int](t, d, `SELECT count(*) FROM dispatch_lanes`)
	receiveUntil(t, listener, func(lanes []int64, _ bool) bool { return len(lanes) == all })
	mailing := uuid.New()
	run(t, d, `INSERT INTO dispatch_lanes (company_id, queue, mailing_id) VALUES ($1, 'email:send', $2)`, company, mailing)
	if err := d.Store.WakeLanes(t.Context(), []lane.Lanes{{Company: company, Queue: "email:send", Mailing: mailing}}); err != nil {
		t.Fatal(err)
	}
	own := ask[int64](t, d, `SELECT id FROM dispatch_lanes WHERE mailing_id IS NOT NULL`)
	receiveUntil(t, listener, func(lanes []int64, _ bool) bool { return slices.Equal(lanes, []int64{own}) })
	run(t, d, `INSERT INTO dispatch_lanes (company_id, queue, mailing_id) SELECT company_id, queue, gen_random_uuid() FROM dispatch_lanes, generate_series(1, 400) WHERE id = $1`, normal)
	if err := d.Store.WakeLanes(t.Context(), []lane.Lanes{{Company: company}}); err != nil {
		t.Fatal(err)
	}
	receiveUntil(t, listener, func(_ []int64, any bool) bool { return any })
}

// A row that is returned to its lane with the next_at that it had is named with that time in a wake-up. One that is due later is
// not.
func TestWakeUp_ReturnedRows(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	listener := listenTo(t, d)
	wakeUntilReceived(t, d, listener)
	company := d.Company(t)
	first, second, later := d.Accept(t, company, nil), d.Accept(t, company, nil), d.Accept(t, company, nil)
	run(t, d, `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() - interval '1 hour', next_at = now() - interval '2 hours'`)
	run(t, d, `UPDATE email_outbox SET next_at = now() - interval '3 hours' WHERE id = $1`, second)
	laneID := ask[int64](t, d, `SELECT DISTINCT lane_id FROM email_outbox`)
	want := func(when string, id uuid.UUID) {
		t.Helper()
		from := ask[time.Time](t, d, `SELECT next_at FROM email_outbox WHERE id = $1`, id)
		deadline := time.After(3 * time.Minute)
		for {
			if named, _ := listener.Named(); len(named) > 0 {
				if len(named) != 1 || named[0].ID != laneID || !named[0].From.Equal(from) {
					t.Errorf("%s: %v is named, want lane %d from %s on", when, named, laneID, from)
				}
				return
			}
			select {
			case <-listener.Woken():
			case <-deadline:
				t.Fatalf("%s: no wake-up", when)
			}
		}
	}
	if n, err := d.Store.ReturnLost(t.Context(), []uuid.UUID{first, second}, time.Minute); err != nil || n.All() != 2 {
		t.Fatalf("returned %+v, %v", n, err)
	}
	want("returned", second)
	run(t, d, `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = $1`, first)
	for id, delay := range map[uuid.UUID]time.Duration{later: time.Minute, first: 0} {
		if locked, err := d.Store.DropTask(t.Context(), id, delay); err != nil || locked {
			t.Fatalf("locked %t, %v", locked, err)
		}
	}
	want("dropped", first)
}

// More lanes than a payload holds are named in several wake-ups.
func TestWakeNamed_ManyLanes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	listener := listenTo(t, d)
	wakeUntilReceived(t, d, listener)
	lanes := make([]lane.Named, 1000)
	for i := range lanes {
		lanes[i] = lane.Named{ID: math.MaxInt64 - int64(i), From: time.Now()}
	}
	if err := d.Store.WakeNamed(t.Context(), lanes); err != nil {
		t.Fatal(err)
	}
	received := make(map[int64]bool)
	receiveUntil(t, listener, func(lanes []int64, _ bool) bool {
		for _, id := range lanes {
			received[id] = true
		}
		return len(received) == 1000
	})
}
