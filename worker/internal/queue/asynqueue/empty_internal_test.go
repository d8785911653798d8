package asynqueue

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/worker/internal/queue/redistest"
)

// next takes a task from a queue as asynq does.
var next = redis.NewScript(`return redis.call("RPOPLPUSH", KEYS[1], KEYS[3])`)

// A queue that was just found empty is not asked for again, and what comes to it is there
// for the next one who asks in time.
func TestEmptyQueues(t *testing.T) {
	t.Parallel()
	url, prefix := redistest.Shared(t)
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	plain, hooked := redis.NewClient(options), redis.NewClient(options)
	t.Cleanup(func() {
		if err := errors.Join(plain.Close(), hooked.Close()); err != nil {
			t.Error(err)
		}
	})
	hooked.AddHook(newEmptyQueues())
	keys := []string{prefix + ":pending", prefix + ":paused", prefix + ":active", prefix + ":lease"}
	ask := func() (string, error) { return next.Run(t.Context(), hooked, keys).Text() }

	begun := time.Now()
	if task, err := ask(); !errors.Is(err, redis.Nil) {
		t.Fatalf("an empty queue has %q, %v", task, err)
	}
	if err := plain.LPush(t.Context(), keys[0], "a").Err(); err != nil {
		t.Fatal(err)
	}
	task, err := ask()
	if took := time.Since(begun); took < glance && !errors.Is(err, redis.Nil) {
		t.Errorf("asked again after %s: %q, %v", took, task, err)
	}
	for errors.Is(err, redis.Nil) {
		if time.Since(begun) > 10*time.Second {
			t.Fatal("the task is never found")
		}
		task, err = ask()
	}
	if task != "a" || err != nil || time.Since(begun) < glance {
		t.Errorf("%q, %v", task, err)
	}
	if _, err := ask(); !errors.Is(err, redis.Nil) {
		t.Errorf("the queue is empty again: %v", err)
	}
}
