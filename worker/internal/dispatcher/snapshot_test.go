package dispatcher_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/dispatcher"
)

// reads records from which position on one lane is read.
type reads struct {
	dispatcher.Store
	lane  int64
	mu    sync.Mutex
	since []dispatch.Position
}

func (r *reads) ProbeLanes(ctx context.Context, lanes []dispatch.LaneProbe) (dispatch.WaitingLanes, error) {
	r.record(lanes...)
	return r.Store.ProbeLanes(ctx, lanes)
}

func (r *reads) TakeDue(ctx context.Context, slot dispatch.Slot, takes []dispatch.LaneTake) (dispatch.Batch, error) {
	for _, take := range takes {
		r.record(take.LaneProbe)
	}
	return r.Store.TakeDue(ctx, slot, takes)
}

func (r *reads) record(lanes ...dispatch.LaneProbe) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range lanes {
		if l.ID == r.lane {
			r.since = append(r.since, l.Since)
		}
	}
}

// taken returns the positions recorded since the last call.
func (r *reads) taken() []dispatch.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := r.since
	r.since = nil
	return since
}

// While an old snapshot is open, the polls and takes of a lane whose rows are taken at once do not read the index entries of
// earlier rows, neither when it is empty nor after its rows were released.
func TestDispatch_DrainedLaneBesideAnOldSnapshot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	company := b.Company(t)
	like := b.Accept(t, company, nil)
	snapshot, err := b.SQL.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Rollback()
	if _, err := snapshot.ExecContext(t.Context(), `SELECT count(*) FROM email_outbox`); err != nil {
		t.Fatal(err)
	}
	p := b.listen(t, time.Hour)
	p.SendRate = 4000
	outbox := &reads{Store: p.Store}
	if err := b.SQL.QueryRowContext(t.Context(), `SELECT lane_id FROM email_outbox WHERE id = $1`, like).Scan(&outbox.lane); err != nil {
		t.Fatal(err)
	}
	var failing atomic.Bool
	p.Store, p.Queue = outbox, &recorder{Publisher: b.publisher, refuse: func(string) error {
		if failing.Load() {
			return errors.New("connection refused")
		}
		return nil
	}}
	b.acceptMany(t, like, 2000)
	b.dispatch(t, p)
	waittest.Until(t, "all are taken", func() bool { return b.count(t, "ENQUEUED") == 2001 })
	// entries counts the index entries of earlier rows, dead or not, that the reads since the last call have passed.
	entries := func() (most int) {
		for _, since := range outbox.taken() {
			var n int
			err := b.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM email_outbox WHERE lane_id = $1 AND (next_at, id) >= (coalesce($2, '-infinity'::timestamptz), $3)`,
				outbox.lane, sql.NullTime{Time: since.NextAt, Valid: !since.NextAt.IsZero()}, since.ID).Scan(&n)
			if err != nil {
				t.Fatal(err)
			}
			most = max(most, n)
		}
		return most
	}
	waittest.Until(t, "the bound passes the taken rows", func() bool {
		since := outbox.taken()
		if len(since) == 0 {
			return false
		}
		outbox.mu.Lock()
		outbox.since = since[len(since)-1:]
		outbox.mu.Unlock()
		return entries() == 0
	})
	for n := range 3 {
		b.expectStatus(t, b.Accept(t, company, nil), "ENQUEUED")
		if most := entries(); most > 10 {
			t.Errorf("email %d: %d entries are read", n, most)
		}
	}
	failing.Store(true)
	id := b.Accept(t, company, nil)
	waittest.Until(t, "the email is taken and released", func() bool { return b.log.Count("connection refused") > 0 })
	failing.Store(false)
	b.expectStatus(t, id, "ENQUEUED")
	waittest.Until(t, "the lane is polled again", func() bool { return len(outbox.taken()) > 0 })
	b.expectStatus(t, b.Accept(t, company, nil), "ENQUEUED")
	if most := entries(); most > 10 {
		t.Errorf("after a release %d entries are read", most)
	}
}
