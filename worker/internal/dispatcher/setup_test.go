package dispatcher_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/logtest"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/dispatcher"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/queuetest"
	"email-gateway/worker/internal/queue/redistest"
)

// timeout is how long a test waits for something that should happen soon.
const timeout = 3 * time.Minute

// bench is the test's own database, queues and publisher.
type bench struct {
	storetest.Database
	conn      asynqueue.Conn
	publisher *asynqueue.Publisher
	log       *logtest.Buffer
}

func newBench(t testing.TB) *bench {
	t.Helper()
	url, prefix := redistest.Shared(t)
	return newBenchOn(t, url, prefix)
}

func newBenchOn(t testing.TB, redisURL, prefix string) *bench {
	t.Helper()
	conn, err := asynqueue.ParseURL(redisURL)
	if err != nil {
		t.Fatal(err)
	}
	conn = conn.WithPrefix(prefix)
	b := &bench{Database: storetest.New(t), conn: conn, publisher: asynqueue.NewPublisher(conn), log: &logtest.Buffer{}}
	t.Cleanup(func() { _ = b.publisher.Close() })
	return b
}

// params configure a dispatcher with a window of 200 tasks.
func (b *bench) params() dispatcher.Params {
	return dispatcher.Params{
		Log: slog.New(slog.NewTextHandler(b.log, nil)), Store: b.Store, Queue: b.publisher, Registry: prometheus.NewRegistry(),
		PollInterval: 50 * time.Millisecond, SendRate: 266 /* a window of 200 */, MaxAttempts: 5,
	}
}

// dispatch runs a dispatcher until the test ends or stop is called.
func (b *bench) dispatch(t testing.TB, p dispatcher.Params) (stop func()) {
	t.Helper()
	d := dispatcher.New(p)
	if err := d.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := d.Stop(ctx); err != nil {
			t.Errorf("stop dispatcher: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// consume runs a consumer with this handler until the test ends.
func (b *bench) consume(t *testing.T, concurrency int, handler queue.Handler) {
	t.Helper()
	consumer := asynqueue.NewConsumer(asynqueue.ConsumerConfig{
		Log: slog.New(slog.DiscardHandler), Conn: b.conn, Handler: handler, Concurrency: concurrency,
	})
	if err := consumer.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := consumer.Stop(ctx); err != nil {
			t.Errorf("stop consumer: %v", err)
		}
	})
}

// acceptMany inserts n copies of an email, with consecutive ids like the api's.
func (b *bench) acceptMany(t testing.TB, like uuid.UUID, n int) {
	t.Helper()
	_, err := b.SQL.ExecContext(t.Context(), `
		INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at)
		SELECT n.id, company_id, lane_id, request_id, jsonb_set(payload, '{outboxId}', to_jsonb(n.id)), sender, html, html_sha256, checker_version, expires_at
		FROM email_outbox, (
			SELECT overlay(gen_random_uuid()::text PLACING lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1e5)::bigint), 12, '0') FROM 1 FOR 13)::uuid AS id
			FROM generate_series(1, $2)
		) n WHERE email_outbox.id = $1`, like, n)
	if err != nil {
		t.Fatalf("accept many: %v", err)
	}
}

// set changes columns of an email's row directly.
func (b *bench) set(t *testing.T, id uuid.UUID, assignments string) {
	t.Helper()
	if _, err := b.SQL.ExecContext(t.Context(), `UPDATE email_outbox SET `+assignments+` WHERE id = $1`, id); err != nil {
		t.Fatalf("set: %v", err)
	}
}

func (b *bench) status(t *testing.T, id uuid.UUID) email.Status {
	t.Helper()
	var status email.Status
	if err := b.SQL.QueryRowContext(t.Context(), `SELECT status FROM email_outbox WHERE id = $1`, id).Scan(&status); err != nil {
		t.Fatalf("read status: %v", err)
	}
	return status
}

func (b *bench) count(t testing.TB, status email.Status) int {
	t.Helper()
	var n int
	if err := b.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM email_outbox WHERE status = $1`, status).Scan(&n); err != nil {
		t.Fatalf("count: %v", err)
	}
	return n
}

func (b *bench) depth(t testing.TB, name string) int {
	t.Helper()
	n, err := queuetest.Depth(t.Context(), b.publisher, name)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (b *bench) expectStatus(t *testing.T, id uuid.UUID, want email.Status) {
	t.Helper()
	waittest.Until(t, "status "+string(want), func() bool { return b.status(t, id) == want })
}

// expectStays checks that the status does not change within a few polls.
func (b *bench) expectStays(t *testing.T, id uuid.UUID, want email.Status) {
	t.Helper()
	deadline := time.After(500 * time.Millisecond)
	for {
		if got := b.status(t, id); got != want {
			t.Fatalf("status %s, want it to stay %s", got, want)
		}
		select {
		case <-deadline:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// recorder records what was published, in order, before it reaches the real queue.
type recorder struct {
	queue.Publisher
	refuse func(id string) error // may be nil

	mu  sync.Mutex
	ids []string
}

func (r *recorder) Publish(ctx context.Context, task queue.Task) (queue.Placed, error) {
	r.mu.Lock()
	r.ids = append(r.ids, task.ID)
	r.mu.Unlock()
	if r.refuse != nil {
		if err := r.refuse(task.ID); err != nil {
			return queue.Queued, err
		}
	}
	return r.Publisher.Publish(ctx, task)
}

func (r *recorder) published() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.ids...)
}

func withPriority(priority int) func(*outbox.NewEmail) {
	return func(e *outbox.NewEmail) { e.Priority = priority }
}
