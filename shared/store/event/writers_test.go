package event_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/store/event"
	"email-gateway/shared/store/storetest"
)

// TestRead_ConcurrentWriters: 64 writers append to emails of their own and to shared ones, in
// transactions of random length, some of which are rolled back, while two processes assign positions
// and lose their connections again and again. A reader that follows the feed meanwhile gets every
// event once, in the order in which a second reader gets them afterwards, and in timeline order per
// email.
func TestRead_ConcurrentWriters(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	d.SQL.SetMaxOpenConns(70)
	shared := make([]uuid.UUID, 8)
	for i := range shared {
		shared[i] = newEmail(t, d.SQL, company)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()

	var background sync.WaitGroup
	for i := range 2 {
		sequencer := open(t, d, fmt.Sprint("sequencer", i))
		background.Go(func() {
			for ctx.Err() == nil {
				_, _ = sequencer.AssignPositions(ctx, 7) // its connection is ended now and then
			}
		})
	}
	background.Go(func() {
		for ctx.Err() == nil {
			_, _ = d.SQL.ExecContext(ctx, `SELECT pg_terminate_backend(pid), pg_sleep(0.05) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name LIKE 'sequencer%'`)
		}
	})

	var writers sync.WaitGroup
	for i := range 64 {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			own := newEmail(t, d.SQL, company)
			foreign := newEmail(t, d.SQL, other)
			for range 12 {
				if err := transaction(t.Context(), d, random, own, foreign, shared[random.IntN(len(shared))]); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}

	reader := open(t, d, "reader")
	var written atomic.Bool
	go func() { writers.Wait(); written.Store(true) }()
	var followed []event.Event
	var after event.Cursor
	for done := false; !done; {
		done = written.Load() && committedAll(t, d)
		page, err := reader.Read(t.Context(), company, after, nil, 1+rand.IntN(40))
		if err != nil {
			t.Fatal(err)
		}
		followed, after = append(followed, page.Events...), page.Next
		done = done && !page.More
	}
	stop()
	background.Wait()

	again, _ := readAll(t, reader, company, event.Cursor{}, 100)
	if diff := cmp.Diff(ids(again), ids(followed)); diff != "" {
		t.Errorf("the second reader sees another order (-second +first):\n%s", diff)
	}
	seqs := map[uuid.UUID]int{}
	for _, e := range followed {
		if e.Seq != seqs[e.EmailID]+1 {
			t.Fatalf("event %d of %s follows its event %d", e.Seq, e.EmailID, seqs[e.EmailID])
		}
		seqs[e.EmailID] = e.Seq
	}
	var inserted int
	if err := d.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM email_events JOIN email_logs ON outbox_id = email_log_id WHERE company_id = $1`, company).Scan(&inserted); err != nil {
		t.Fatal(err)
	}
	if len(followed) != inserted {
		t.Errorf("the reader got %d events of %d", len(followed), inserted)
	}
}

// transaction appends to some of the emails, in the order of their ids as the gateway does, and waits
// in between; one in five is rolled back.
func transaction(ctx context.Context, d storetest.Database, random *rand.Rand, own, foreign, shared uuid.UUID) error {
	tx, err := d.SQL.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, id := range [...]uuid.UUID{shared, own, foreign} {
		if random.IntN(3) == 0 {
			continue
		}
		if err := appendEvents(ctx, tx, id, 1+random.IntN(3)); err != nil {
			return fmt.Errorf("append: %w", err)
		}
		if _, err := tx.ExecContext(ctx, `SELECT pg_sleep($1)`, random.Float64()*0.03); err != nil {
			return fmt.Errorf("wait: %w", err)
		}
	}
	if random.IntN(5) == 0 {
		return nil
	}
	return tx.Commit()
}

// committedAll reports whether every row of the feed has a position.
func committedAll(tb testing.TB, d storetest.Database) bool {
	tb.Helper()
	var waiting int
	if err := d.SQL.QueryRowContext(tb.Context(), `SELECT count(*) FROM event_feed WHERE position IS NULL`).Scan(&waiting); err != nil {
		tb.Fatal(err)
	}
	return waiting == 0
}
