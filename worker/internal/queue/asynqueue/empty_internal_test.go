package asynqueue

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"email-gateway/shared/email"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/redistest"
)

func dequeue(queue string) *redis.Cmd {
	key := "asynq:{" + queue + "}:"
	return redis.NewCmd(context.Background(), "evalsha", "5e6c", 4, key+"pending", key+"paused", key+"active", key+"lease", 1, key+"t:")
}

// stock is what stands behind the hook: so many tasks of each queue, and which it was asked for.
type stock struct {
	tasks map[string]int
	asked []string
}

func (s *stock) answer(_ context.Context, cmd redis.Cmder) error {
	queue := dequeued(cmd)
	s.asked = append(s.asked, queue)
	if s.tasks[queue] == 0 {
		cmd.SetErr(redis.Nil)
		return redis.Nil
	}
	s.tasks[queue]--
	return nil
}

// A queue is left alone only while it was found empty and another one gives tasks since.
func TestEmptyQueues(t *testing.T) {
	t.Parallel()
	const low, high = "asynq:{low}:pending", "asynq:{high}:pending"
	behind := &stock{tasks: map[string]int{high: 2}}
	hook := newEmptyQueues(time.Hour).ProcessHook(behind.answer)
	for i, step := range []struct {
		ask   string
		found bool
		asked int // how often Redis was asked until then
	}{
		{"low", false, 1},
		{"low", false, 2}, // nobody gives any: it is asked again
		{"high", true, 3},
		{"low", false, 3}, // spared
		{"high", true, 4},
		{"high", false, 5}, // never spared: it gave the newest itself
		{"low", false, 5},
	} {
		err := hook(t.Context(), dequeue(step.ask))
		if found := err == nil; found != step.found || len(behind.asked) != step.asked {
			t.Errorf("step %d, %s: %v; asked for %v", i, step.ask, err, behind.asked)
		}
	}
	hook = newEmptyQueues(0).ProcessHook(behind.answer)
	behind.tasks[high], behind.asked = 1, nil
	for _, name := range []string{"low", "high", "low"} {
		if err := hook(t.Context(), dequeue(name)); err != nil && !errors.Is(err, redis.Nil) {
			t.Error(err)
		}
	}
	if len(behind.asked) != 3 {
		t.Errorf("past its time: asked for %v", behind.asked)
	}
}

func TestDequeued(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]any{
		"a task that is done":  {"evalsha", "5e6c", 5, "asynq:{low}:active", "asynq:{low}:lease", "asynq:{low}:t:1", "asynq:{low}:processed:1", "asynq:{low}:processed", 1},
		"a task given back":    {"evalsha", "5e6c", 4, "asynq:{low}:active", "asynq:{low}:lease", "asynq:{low}:pending", "asynq:{low}:t:1", 1},
		"a queue that is gone": {"evalsha", "5e6c", 6, "asynq:{low}:pending", "asynq:{low}:active", "asynq:{low}:scheduled", 1},
		"no script":            {"lrange", "asynq:{low}:pending", 0, "asynq:{low}:paused", "asynq:{low}:paused"},
		"no keys":              {"evalsha", "5e6c", 0},
	} {
		if queue := dequeued(redis.NewCmd(t.Context(), args...)); queue != "" {
			t.Errorf("%s is taken for a look at %s", name, queue)
		}
	}
	if queue := dequeued(dequeue("low")); queue != "asynq:{low}:pending" {
		t.Errorf("a look at low is taken for one at %q", queue)
	}
}

// looks counts the tasks that a client asks Redis for, by queue.
type looks struct {
	mu sync.Mutex
	at map[string]int
}

func (l *looks) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (l *looks) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (l *looks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		l.mu.Lock()
		for _, cmd := range cmds {
			l.at[dequeued(cmd)]++
		}
		l.mu.Unlock()
		return next(ctx, cmds)
	}
}

// A Consumer that works one queue off leaves the others alone, and asynq's script is still
// the one that is known here.
func TestConsumer_LeavesEmptyQueuesAlone(t *testing.T) {
	t.Parallel()
	url, prefix := redistest.Shared(t)
	conn, err := ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	conn = conn.WithPrefix(prefix)
	publisher := NewPublisher(conn)
	t.Cleanup(func() { _ = publisher.Close() })
	const tasks = 1000
	busy := email.Queues()[0]
	for range tasks {
		if _, err := publisher.Publish(t.Context(), queue.Task{ID: uuid.NewString(), Queue: busy, Payload: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	var done atomic.Int64
	over := make(chan struct{})
	consumer := NewConsumer(ConsumerConfig{
		Log: slog.New(slog.DiscardHandler), Conn: conn, Concurrency: 8,
		Handler: func(context.Context, queue.Task) error {
			if done.Add(1) == tasks {
				close(over)
			}
			return nil
		},
	})
	seen := &looks{at: make(map[string]int)}
	consumer.redis.AddHook(seen)
	begun := time.Now()
	if err := consumer.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	<-over
	if err := consumer.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	for _, name := range email.Queues()[1:] {
		// Once for each glance; and a few times at either end, where nothing is given.
		took := time.Since(begun)
		if n, most := seen.at["asynq:{"+prefix+name+"}:pending"], int(took/glance)+10; n == 0 || n > most {
			t.Errorf("%s was asked %d times in %s, want 1 to %d: %v", name, n, took, most, seen.at)
		}
	}
}
