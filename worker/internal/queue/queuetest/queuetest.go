// Package queuetest is the suite that every queue adapter must pass. An adapter's
// own test calls Run with a broker of its own:
//
//	queuetest.Run(t, func(t *testing.T) queuetest.Broker { … })
//
// What it holds an adapter to is what dispatcher and pipeline build on: an id stands
// on a queue at most once, a task that gave up may come again, a delay is kept
// within a second, and nothing that was published is lost while the broker lives.
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

// Broker is one adapter at the suite's disposal. Its queues are empty, and nobody
// else uses them.
type Broker struct {
	Publisher queue.Publisher
	// Consume starts a consumer of all queues with room for several tasks at once.
	// stop ends it as a program does that is told to stop.
	Consume func(t *testing.T, handler queue.Handler) (stop func(ctx context.Context) error)

	// Waiting counts the normal queue's tasks that wait for their time.
	Waiting func(t *testing.T) int
	// Restart ends the broker's process in good order and starts it again. It is called
	// while no other test of the suite runs. An adapter whose broker cannot be restarted
	// leaves it nil.
	Restart func(t *testing.T)
	// LoseReply lets the broker's next answer to the Publisher get lost on its way,
	// after the broker did what it was asked for. May be nil too.
	LoseReply func(t *testing.T)
}

// Start makes a Broker and leaves the cleanup to t.
type Start func(t *testing.T) Broker

// Run holds an adapter to the contract.
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

// patience is how long the suite waits for something that should happen soon. A
// broker's restart is the slowest.
const patience = 3 * time.Minute

func newTask() queue.Task {
	id := uuid.Must(uuid.NewV7()).String()
	return queue.Task{ID: id, Queue: email.QueueNormal, Payload: []byte(`{"outboxId":"` + id + `"}`)}
}

// publish puts the task on its queue and expects to find it there.
func (b Broker) publish(t *testing.T, task queue.Task) {
	t.Helper()
	placed, err := b.Publisher.Publish(t.Context(), task)
	if err != nil || placed == queue.Busy {
		t.Fatalf("publish: placed %d, error %v", placed, err)
	}
}

// consume starts a consumer that is stopped with the test at the latest.
func (b Broker) consume(t *testing.T, handler queue.Handler) (stop func()) {
	t.Helper()
	end := b.Consume(t, handler)
	stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
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

// delivery is one call of a handler, which ends when it is answered.
type delivery struct {
	task   queue.Task
	at     time.Time
	ctx    context.Context
	answer chan error
}

// desk hands each delivery to the test and returns what the test answers.
type desk chan delivery

func (d desk) handle(ctx context.Context, task queue.Task) error {
	one := delivery{task: task, at: time.Now(), ctx: ctx, answer: make(chan error, 1)}
	d <- one
	return <-one.answer
}

// next waits for a delivery.
func (d desk) next(t *testing.T) delivery {
	t.Helper()
	select {
	case one := <-d:
		return one
	case <-time.After(patience):
		t.Fatal("no task was delivered")
		return delivery{}
	}
}

// quiet expects no delivery for a moment: longer than any pick-up takes.
func (d desk) quiet(t *testing.T) {
	t.Helper()
	select {
	case one := <-d:
		one.answer <- nil
		t.Errorf("task %s was delivered once more", one.task.ID)
	case <-time.After(1500 * time.Millisecond):
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("never seen: %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

var errFault = errors.New("a fault of ours")
