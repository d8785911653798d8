package asynqueue_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"email-gateway/shared/email"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/redistest"
)

// gated admits one task for each value of pass.
type gated struct {
	pass  chan struct{}
	asked atomic.Int64
}

func (g *gated) Admit(ctx context.Context, _ int, pending func() bool) (time.Time, error) {
	g.asked.Add(1)
	if !pending() {
		return time.Time{}, nil
	}
	select {
	case <-g.pass:
		return time.Now(), nil
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

func (g *gated) Unused()               {}
func (g *gated) Used(time.Time)        {}
func (g *gated) Begin() (at time.Time) { return at }
func (g *gated) End()                  {}

// A Redis that stalls executes what was sent to it when it resumes, and no worker has a task that is taken then: the script that
// takes a task is not repeated.
func TestConsumer_StalledRedis(t *testing.T) {
	t.Parallel()
	const tasks = 20
	server := redistest.Start(t)
	conn, direct := parse(t, server.URL), open[*redis.Client](t, server.URL)
	publisher := asynqueue.NewPublisher(conn)
	t.Cleanup(func() { _ = publisher.Close() })
	for range tasks {
		publish(t, publisher, uuid.NewString())
	}
	gate := &gated{pass: make(chan struct{})}
	handled := make(chan string, tasks)
	consumer := asynqueue.NewConsumer(asynqueue.ConsumerConfig{
		Log: quiet(), Conn: conn, Concurrency: 1, Admission: gate,
		Handler: func(_ context.Context, task queue.Task) error { handled <- task.ID; return nil },
	})
	if err := consumer.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	length := func(state string) int64 {
		return direct.LLen(t.Context(), "asynq:{"+email.QueueNormal+"}:"+state).Val()
	}
	gate.pass <- struct{}{} // Redis learns the scripts
	receive(t, handled)
	waittest.Until(t, "the first task has ended", func() bool { return length("active") == 0 })
	if err := direct.Do(t.Context(), "CLIENT", "PAUSE", 1000).Err(); err != nil {
		t.Fatal(err)
	}
	var warm sync.WaitGroup
	for range 10 { // each opens a connection, on which a script could be repeated
		warm.Go(func() {
			if err := consumer.Ping(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	warm.Wait()

	server.Freeze()
	t.Cleanup(server.Thaw)
	asked := gate.asked.Load()
	close(gate.pass)
	waittest.Until(t, "the Server has asked again", func() bool { return gate.asked.Load() > asked })
	server.Thaw()
	waittest.Until(t, "all tasks are taken", func() bool { return length("pending") == 0 })
	stopping, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := consumer.Stop(stopping); err != nil {
		t.Errorf("stop: %v", err)
	}
	if n := length("active"); n > 1 {
		t.Errorf("%d tasks have no worker, want at most one", n)
	}
}
