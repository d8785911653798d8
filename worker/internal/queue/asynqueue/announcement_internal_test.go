package asynqueue

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/worker/internal/queue/redistest"
)

var (
	takingKeys   = []string{"asynq:{q}:pending", "asynq:{q}:paused", "asynq:{q}:active", "asynq:{q}:lease"}
	takingScript = redis.NewScript(`return redis.call("RPOPLPUSH", KEYS[1], KEYS[3])`)
)

// newIdling returns the client of a Server with two queues, and another client of the same Redis.
func newIdling(t *testing.T, maxIdle time.Duration) (*pollDelayer, *redis.Client) {
	t.Helper()
	o, err := redis.ParseURL(redistest.Start(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	server := redis.NewClient(o)
	t.Cleanup(func() { _ = server.Close() })
	return &pollDelayer{UniversalClient: server, subscriber: newSubscriber(), queues: 2, maxIdle: maxIdle, stopping: t.Context()}, server
}

// look runs the script that takes a task, as asynq does for one queue.
func (p *pollDelayer) look(t *testing.T) error {
	t.Helper()
	return takingScript.Run(t.Context(), p, takingKeys).Err()
}

// A wait that was longer than MaxIdle can be, as in a frozen process, takes no task: asynq computed its lease before the wait.
func TestIdling_LongWait(t *testing.T) {
	t.Parallel()
	i, server := newIdling(t, maxWait+time.Millisecond)
	for range i.queues {
		if err := i.look(t); !errors.Is(err, redis.Nil) {
			t.Fatalf("err = %v, want an empty queue", err)
		}
	}
	if err := server.LPush(t.Context(), takingKeys[0], "task").Err(); err != nil {
		t.Fatal(err)
	}
	if err := i.look(t); !errors.Is(err, errNotAdmitted) {
		t.Errorf("err = %v after a long wait, want errNotAdmitted", err)
	}
	if err := i.look(t); err != nil {
		t.Errorf("err = %v when asynq asks again, want a task", err)
	}
}

// asynq ends its looks at an error, and begins again with the first queue: so does the count of empty queues.
func TestIdling_Error(t *testing.T) {
	t.Parallel()
	i, server := newIdling(t, time.Hour)
	if err := i.look(t); !errors.Is(err, redis.Nil) {
		t.Fatalf("err = %v, want an empty queue", err)
	}
	if err := server.Set(t.Context(), takingKeys[0], "", 0).Err(); err != nil { // not a list
		t.Fatal(err)
	}
	if err := i.look(t); err == nil || errors.Is(err, redis.Nil) {
		t.Fatalf("err = %v, want an error of Redis", err)
	}
	if i.empty != 0 {
		t.Errorf("%d queues count as empty after an error", i.empty)
	}
}

// A Redis that refuses every script, because it is full for example, is asked a few times per second, and without a pause again
// after it has given a task.
func TestIdling_Refusals(t *testing.T) {
	t.Parallel()
	i, server := newIdling(t, time.Hour)
	if err := server.Set(t.Context(), takingKeys[0], "", 0).Err(); err != nil { // not a list
		t.Fatal(err)
	}
	start := time.Now()
	const refusals = 10
	for range refusals {
		if err := i.look(t); err == nil || errors.Is(err, redis.Nil) {
			t.Fatalf("err = %v, want an error of Redis", err)
		}
	}
	// 5 + 10 + … + 320 + 500 + 500 ms before all but the first.
	if took, least := time.Since(start), 1635*time.Millisecond; took < least {
		t.Errorf("%d refusals took %s, want at least %s", refusals, took, least)
	}
	if err := server.Del(t.Context(), takingKeys[0]).Err(); err != nil {
		t.Fatal(err)
	}
	if err := server.LPush(t.Context(), takingKeys[0], "task").Err(); err != nil {
		t.Fatal(err)
	}
	if err := i.look(t); err != nil {
		t.Errorf("err = %v, want the task", err)
	}
	if i.refusal != 0 {
		t.Errorf("a pause of %s follows a task", i.refusal)
	}
}

// Publishers that announce without end, with nothing on the queues, make a Server look every announceEvery at most.
func TestIdling_AnnouncementsWithoutEnd(t *testing.T) {
	t.Parallel()
	i, _ := newIdling(t, time.Hour)
	flood := make(chan struct{})
	t.Cleanup(func() { <-flood })
	go func() {
		defer close(flood)
		for t.Context().Err() == nil {
			i.subscriber.wake()
		}
	}()
	const rounds = 20
	start := time.Now()
	for range rounds * i.queues {
		if err := i.look(t); !errors.Is(err, redis.Nil) {
			t.Fatalf("err = %v, want an empty queue", err)
		}
	}
	if took, least := time.Since(start), (rounds-1)*announceEvery; took < least {
		t.Errorf("%d rounds of looks took %s, want at least %s", rounds, took, least)
	}
}
