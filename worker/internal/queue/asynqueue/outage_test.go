package asynqueue_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/shared/email"
	"email-gateway/shared/logtest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/queuetest"
	"email-gateway/worker/internal/queue/redistest"
)

func TestConsumer_StartWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Stop()
	conn := parse(t, server.URL)

	handled := make(chan string, 1)
	consumer := asynqueue.NewConsumer(asynqueue.ConsumerConfig{
		Log: quiet(), Conn: conn, Concurrency: 70,
		Handler: func(_ context.Context, task queue.Task) error { handled <- task.ID; return nil },
	})
	if err := consumer.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { _ = consumer.Stop(context.Background()) })
	publisher := asynqueue.NewPublisher(conn)
	t.Cleanup(func() { _ = publisher.Close() })
	if err := consumer.Ping(t.Context()); err == nil {
		t.Error("ping says that Redis is there")
	}
	if _, err := queuetest.Depth(t.Context(), publisher, email.QueueNormal); err == nil {
		t.Error("an unreachable queue has a depth")
	}
	if _, err := publisher.Publish(t.Context(), queue.Task{ID: "1", Queue: email.QueueNormal}); err == nil {
		t.Error("published on an unreachable queue")
	}

	server.Start()
	publish(t, publisher, "00000000-0000-7000-8000-000000000001")
	receive(t, handled)
	if err := consumer.Ping(t.Context()); err != nil {
		t.Errorf("ping after the start: %v", err)
	}
}

// A frozen Redis neither answers nor refuses. Callers must be able to time out.
func TestFrozenRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	publisher := asynqueue.NewPublisher(parse(t, server.URL))
	t.Cleanup(func() { _ = publisher.Close() })
	var log logtest.Buffer
	consumer := asynqueue.NewConsumer(asynqueue.ConsumerConfig{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Conn: parse(t, server.URL), Concurrency: 2,
		Handler: func(context.Context, queue.Task) error { return nil },
	})
	if err := consumer.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	server.Freeze()
	t.Cleanup(server.Thaw)

	start := time.Now()
	unlimited := make(chan error, 1)
	go func() {
		_, err := publisher.Publish(t.Context(), queue.Task{ID: "2", Queue: email.QueueNormal})
		unlimited <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := publisher.Publish(ctx, queue.Task{ID: "1", Queue: email.QueueNormal}); err == nil {
		t.Error("published on a frozen Redis")
	}
	select {
	case err := <-unlimited:
		t.Errorf("publishing with a context of 300 ms took as long as without: %s, %v", time.Since(start), err)
	default: // a pipeline ends after 4 s without its callers' contexts
	}
	stopping, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := consumer.Stop(stopping); err != nil {
		t.Errorf("stop: %v", err)
	}
	t.Logf("stopped after %s, with %d lines of log", time.Since(start).Round(time.Second), log.Count("\n"))
	if log.Count("\n") > 20 {
		t.Errorf("%d lines of log about one outage:\n%s", log.Count("\n"), log.String())
	}
}

// After a flush, asynq's client still considers the queue registered, and the dashboard does not
// show it.
func TestFlushedRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	publisher := asynqueue.NewPublisher(parse(t, server.URL))
	t.Cleanup(func() { _ = publisher.Close() })
	direct := open[*redis.Client](t, server.URL)

	task := queue.Task{ID: "1", Queue: email.QueueNormal, Payload: []byte("{}")}
	for range 2 {
		if placed, err := publisher.Publish(t.Context(), task); err != nil || placed == queue.Busy {
			t.Fatalf("publish: placed %d, error %v", placed, err)
		}
		if err := direct.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	// Twice, so that the second publish finds the task but not the queue's name.
	for range 2 {
		if placed, err := publisher.Publish(t.Context(), task); err != nil || placed == queue.Busy {
			t.Fatalf("publish after the flush: placed %d, error %v", placed, err)
		}
	}
	if err := direct.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if depth, err := queuetest.Depth(t.Context(), publisher, email.QueueNormal); err != nil || depth != 0 {
		t.Errorf("depth after the flush: %d, error %v", depth, err)
	}
	if names := direct.SMembers(t.Context(), "asynq:queues").Val(); len(names) != 1 {
		t.Errorf("registered queues: %v", names)
	}
}

// A full Redis accepts no task, does not count as writable, and still reports its depth.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	publisher := asynqueue.NewPublisher(parse(t, server.URL))
	t.Cleanup(func() { _ = publisher.Close() })
	publish(t, publisher, "1")
	if err := open[*redis.Client](t, server.URL).ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := publisher.Publish(t.Context(), queue.Task{ID: "2", Queue: email.QueueNormal}); err == nil {
		t.Error("published on a full Redis")
	}
	if err := publisher.Ping(t.Context()); err == nil {
		t.Error("ping says that a full Redis can be written to")
	}
	if room, err := publisher.Reserve(t.Context(), email.QueueNormal, 10, 10); err == nil || room.Depth != 1 || room.Granted != 0 {
		t.Errorf("%+v, error %v; want an error, a depth of 1 and no room", room, err)
	}
}

// A queue with an id without a task makes asynq's own statistics fail.
func TestDepth_CountsIDsWithoutTask(t *testing.T) {
	t.Parallel()
	url, prefix := redistest.Shared(t)
	publisher := asynqueue.NewPublisher(parse(t, url).WithPrefix(prefix))
	t.Cleanup(func() { _ = publisher.Close() })
	publish(t, publisher, "1")
	direct := open[*redis.Client](t, url)
	if n := direct.Del(t.Context(), "asynq:{"+prefix+email.QueueNormal+"}:t:1").Val(); n != 1 {
		t.Fatal("the task's key has another name")
	}
	if depth, err := queuetest.Depth(t.Context(), publisher, email.QueueNormal); err != nil || depth != 1 {
		t.Errorf("depth %d, error %v; want 1", depth, err)
	}
}

func publish(t *testing.T, publisher *asynqueue.Publisher, id string) {
	t.Helper()
	placed, err := publisher.Publish(t.Context(), queue.Task{ID: id, Queue: email.QueueNormal, Payload: []byte("{}")})
	if err != nil || placed == queue.Busy {
		t.Fatalf("publish: placed %d, error %v", placed, err)
	}
}

// Calls in one pipeline each get their own answer, and fail together if Redis is down.
func TestPublish_Concurrent(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	publisher := asynqueue.NewPublisher(parse(t, server.URL))
	t.Cleanup(func() { _ = publisher.Close() })
	publishAll := func() (failed int64) {
		var failures atomic.Int64
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				// Every id twice: half of the answers are conflicts.
				task := queue.Task{ID: fmt.Sprint(i / 2), Queue: email.QueueNormal, Payload: []byte("{}")}
				if placed, err := publisher.Publish(t.Context(), task); err != nil || placed == queue.Busy {
					failures.Add(1)
				}
			})
		}
		wg.Wait()
		return failures.Load()
	}
	if failed := publishAll(); failed != 0 {
		t.Errorf("%d of 500 failed", failed)
	}
	if depth, err := queuetest.Depth(t.Context(), publisher, email.QueueNormal); err != nil || depth != 250 {
		t.Errorf("depth %d, error %v; want 250", depth, err)
	}
	server.Stop()
	if failed := publishAll(); failed != 500 {
		t.Errorf("without Redis, %d of 500 failed", failed)
	}
	server.Start()                                                                       // it knows no scripts: they must be loaded again
	waittest.Until(t, "all 500 are published", func() bool { return publishAll() == 0 }) // go-redis dials again once a second
}

func receive(t *testing.T, from <-chan string) string {
	t.Helper()
	select {
	case id := <-from:
		return id
	case <-time.After(3 * time.Minute):
		t.Fatal("nothing was handled")
		return ""
	}
}
