// Package queuetest is the test suite for queue adapters. The test of an adapter calls Run with its own broker:
//
//	queuetest.Run(t, func(t *testing.T) queuetest.Broker { … })
//
// The suite checks the properties on which dispatcher and pipeline rely: a queue holds an id at most once, a failed task may be
// published again, a delay is accurate to a second, and no published task is lost while the broker is running.
package queuetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/worker/internal/queue"
)

// Broker is one adapter under test. Its queues are empty and not used by anything else.
type Broker struct {
	Publisher queue.Publisher
	// Consume starts a consumer of all queues with a concurrency of several tasks. stop stops it as a program does.
	Consume func(t *testing.T, handler queue.Handler) (stop func(ctx context.Context) error)

	// Waiting counts the delayed tasks of the normal queue.
	Waiting func(t *testing.T) int
	// Restart restarts the broker's process cleanly. It is called while no other test of the suite
	// runs. Optional.
	Restart func(t *testing.T)
	// LoseReply loses the broker's next answer to the Publisher, after the broker has executed the
	// command. Optional.
	LoseReply func(t *testing.T)
}

// Start makes a Broker and registers the cleanup with t.
type Start func(t *testing.T) Broker

// Run tests an adapter.
func Run(t *testing.T, start Start) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Broker)
	}{
		{"publish and handle", publishAndHandle},
		{"one task per id", oneTaskPerID},
		{"publish at the same time", publishAtTheSameTime},
		{"depth", depth},
		{"room", room},
		{"busy", busy},
		{"retry later", retryLater},
		{"retry later is replaced", retryLaterIsReplaced},
		{"dead may come again", deadMayComeAgain},
		{"fault and panic are retried", faultAndPanicAreRetried},
		{"stop waits", stopWaits},
		{"every queue", everyQueue},
		{"lost reply", lostReply},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, start(t))
		})
	}
	t.Run("restart", func(t *testing.T) { restart(t, start(t)) })
}

// timeout is how long the suite waits for an expected event. The slowest is the restart of a broker.
const timeout = 3 * time.Minute

func newTask() queue.Task {
	id := uuid.Must(uuid.NewV7()).String()
	return queue.Task{ID: id, Queue: email.QueueNormal, Payload: []byte(`{"outboxId":"` + id + `"}`)}
}

// publish publishes the task and expects it to be queued.
func (b Broker) publish(t *testing.T, task queue.Task) {
	t.Helper()
	placed, err := b.Publisher.Publish(t.Context(), task)
	if err != nil || placed == queue.Busy {
		t.Fatalf("publish: placed %d, error %v", placed, err)
	}
}

// consume starts a consumer that is stopped at the end of the test at the latest.
func (b Broker) consume(t *testing.T, handler queue.Handler) (stop func()) {
	t.Helper()
	end := b.Consume(t, handler)
	stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := end(ctx); err != nil {
			t.Errorf("stop consumer: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Depth measures a queue of any adapter.
func Depth(ctx context.Context, p queue.Publisher, name string) (int, error) {
	room, err := p.Reserve(ctx, name, 1, 0)
	return room.Depth, err
}

func (b Broker) expectWaiting(t *testing.T, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d waiting tasks", want), func() bool { return b.Waiting(t) == want })
}

func (b Broker) expectDepth(t *testing.T, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("depth %d", want), func() bool {
		got, err := Depth(t.Context(), b.Publisher, email.QueueNormal)
		return err == nil && got == want
	})
}

// delivery is one call of a handler, which returns when a result is sent to answer.
type delivery struct {
	task   queue.Task
	at     time.Time
	ctx    context.Context
	answer chan error
}

// deliveries passes each delivery to the test and returns the test's result.
type deliveries chan delivery

func (d deliveries) handle(ctx context.Context, task queue.Task) error {
	one := delivery{task: task, at: time.Now(), ctx: ctx, answer: make(chan error, 1)}
	d <- one
	return <-one.answer
}

// next waits for a delivery.
func (d deliveries) next(t *testing.T) delivery {
	t.Helper()
	select {
	case one := <-d:
		return one
	case <-time.After(timeout):
		t.Fatal("no task was delivered")
		return delivery{}
	}
}

// quiet expects that no task is delivered for 1.5 s, which is longer than any pickup takes.
func (d deliveries) quiet(t *testing.T) {
	t.Helper()
	select {
	case one := <-d:
		one.answer <- nil
		t.Errorf("task %s was delivered again", one.task.ID)
	case <-time.After(1500 * time.Millisecond):
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(timeout)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("timeout: %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

var errFault = errors.New("internal error")
