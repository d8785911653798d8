package asynqueue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"email-gateway/shared/email"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/redistest"
)

// idleConsumer starts a consumer, and returns the ids of the tasks that it has handled.
func idleConsumer(t *testing.T, conn asynqueue.Conn, maxIdle time.Duration) chan string {
	t.Helper()
	handled := make(chan string, 100)
	consumer := asynqueue.NewConsumer(asynqueue.ConsumerConfig{
		Log: quiet(), Conn: conn, Concurrency: 70, MaxIdle: maxIdle,
		Handler: func(_ context.Context, task queue.Task) error { handled <- task.ID; return nil },
	})
	if err := consumer.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { _ = consumer.Stop(context.Background()) })
	return handled
}

// Announcements alone wake an idle consumer: this one would look at the queues again after an hour.
func TestConsumer_Announcements(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := parse(t, server.URL)
	publisher := asynqueue.NewPublisher(conn)
	t.Cleanup(func() { _ = publisher.Close() })
	handled := idleConsumer(t, conn, time.Hour)

	for n := range 3 { // the consumer is idle before each
		publish(t, publisher, fmt.Sprintf("00000000-0000-7000-8000-00000000000%d", n))
		receive(t, handled)
	}
	for n := range 50 {
		publish(t, publisher, fmt.Sprintf("00000000-0000-7000-8000-0000000001%02d", n))
	}
	for range 50 {
		receive(t, handled)
	}

	// Tasks that are published while a consumer has no subscription are found when it has one again.
	client, ok := conn.MakeRedisClient().(redis.UniversalClient)
	if !ok {
		t.Fatal("not a redis client")
	}
	defer func() { _ = client.Close() }()
	for n := range 3 {
		if err := client.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err(); err != nil {
			t.Fatal(err)
		}
		publish(t, publisher, fmt.Sprintf("00000000-0000-7000-8000-00000000020%d", n))
		receive(t, handled)
	}
}

// A task whose announcement was lost, or that no publisher announced, waits for MaxIdle at most.
func TestConsumer_TaskWithoutAnnouncement(t *testing.T) {
	t.Parallel()
	conn := parse(t, redistest.Start(t).URL)
	handled := idleConsumer(t, conn, 0)
	client, ok := conn.MakeRedisClient().(redis.UniversalClient)
	if !ok {
		t.Fatal("not a redis client")
	}
	defer func() { _ = client.Close() }()
	for n := range 3 {
		id := fmt.Sprintf("00000000-0000-7000-8000-00000000000%d", n)
		if _, err := asynq.NewClientFromRedisClient(client).EnqueueContext(t.Context(), asynq.NewTask("email:send", nil), asynq.TaskID(id), asynq.Queue(email.QueueNormal)); err != nil {
			t.Fatal(err)
		}
		receive(t, handled)
	}
}
