package queuetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/email"
	"email-gateway/worker/internal/queue"
)

// early and late are the tolerance for a delayed task: brokers use whole seconds, and poll their delayed tasks.
const (
	early = 750 * time.Millisecond
	late  = 1500 * time.Millisecond
)

func publishAndHandle(t *testing.T, b Broker) {
	tasks := make(deliveries)
	b.consume(t, tasks.handle)
	for _, trace := range []string{"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"} {
		task := newTask()
		task.Traceparent = trace
		b.publish(t, task)
		got := tasks.next(t)
		if diff := cmp.Diff(task, got.task); diff != "" {
			t.Errorf("delivered (-want +got)\n%s", diff)
		}
		got.answer <- nil
	}
	b.expectDepth(t, 0)
	tasks.quiet(t)
}

func oneTaskPerID(t *testing.T, b Broker) {
	task := newTask()
	b.publish(t, task)
	b.publish(t, task)
	b.expectDepth(t, 1)
	tasks := make(deliveries)
	b.consume(t, tasks.handle)
	tasks.next(t).answer <- nil
	tasks.quiet(t)
	b.publish(t, task) // completed: the id can be published again
	tasks.next(t).answer <- nil
}

func publishAtTheSameTime(t *testing.T, b Broker) {
	task := newTask()
	var wg sync.WaitGroup
	var failed atomic.Int64
	for range 16 {
		wg.Go(func() {
			if placed, err := b.Publisher.Publish(t.Context(), task); err != nil || placed == queue.Busy {
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of 16 publishers failed", failed.Load())
	}
	b.expectDepth(t, 1)
}

func depth(t *testing.T, b Broker) {
	got, err := Depth(t.Context(), b.Publisher, email.QueueNormal)
	if err != nil || got != 0 {
		t.Fatalf("of a queue that does not exist: %d, error %v", got, err)
	}
	for range 3 {
		b.publish(t, newTask())
	}
	b.expectDepth(t, 3)
	got, err = Depth(t.Context(), b.Publisher, email.QueueHigh)
	if err != nil || got != 0 {
		t.Errorf("of another queue: %d, error %v", got, err)
	}

	tasks := make(deliveries)
	b.consume(t, tasks.handle)
	one, other, third := tasks.next(t), tasks.next(t), tasks.next(t)
	b.expectDepth(t, 3) // active tasks count
	one.answer <- nil
	b.expectDepth(t, 2)
	other.answer <- &queue.RetryLater{Delay: time.Hour, Reason: "not yet"} // delayed tasks count too
	third.answer <- &queue.Dead{Reason: "never"}
	b.expectDepth(t, 1)
}

// room: a grant is the free room of the window and replaces the last grant of the publisher; after Release, published tasks
// still count.
func room(t *testing.T, b Broker) {
	reserve := func(window, limit, want int) {
		t.Helper()
		got, err := b.Publisher.Reserve(t.Context(), email.QueueNormal, window, limit)
		if err != nil || got.Granted != want {
			t.Errorf("window %d, most %d: %+v, error %v; want %d granted", window, limit, got, err, want)
		}
	}
	reserve(5, 3, 3)
	reserve(5, 9, 5)
	b.publish(t, newTask())
	b.publish(t, newTask())
	reserve(5, 9, 3)
	if err := b.Publisher.Release(t.Context(), email.QueueNormal); err != nil {
		t.Error(err)
	}
	reserve(5, 9, 3)
	reserve(2, 9, 0)
	reserve(1, 9, 0)
	reserve(5, 0, 0)
}

func busy(t *testing.T, b Broker) {
	tasks := make(deliveries)
	b.consume(t, tasks.handle)
	task := newTask()
	b.publish(t, task)
	working := tasks.next(t)
	placed, err := b.Publisher.Publish(t.Context(), task)
	if err != nil || placed != queue.Busy {
		t.Errorf("while it is active: placed %d, error %v; want Busy", placed, err)
	}
	working.answer <- nil
	eventually(t, "published again", func() bool {
		placed, err := b.Publisher.Publish(t.Context(), task)
		return err == nil && placed == queue.Queued
	})
	tasks.next(t).answer <- nil
}

func retryLater(t *testing.T, b Broker) {
	tasks := make(deliveries)
	b.consume(t, tasks.handle)
	for _, delay := range []time.Duration{time.Second, 2500 * time.Millisecond} {
		task := newTask()
		b.publish(t, task)
		first := tasks.next(t)
		answered := time.Now()
		first.answer <- &queue.RetryLater{Delay: delay, Reason: "the provider is busy"}
		second := tasks.next(t)
		second.answer <- nil
		if waited := second.at.Sub(answered); waited < delay-early || waited > delay+late {
			t.Errorf("requested %s, delivered after %s", delay, waited)
		}
		if first.task.Retried != 0 || second.task.Retried != 1 {
			t.Errorf("retried %d, then %d times; want 0, then 1", first.task.Retried, second.task.Retried)
		}
	}
}

// retryLaterIsReplaced: publishing an id whose task waits for a retry replaces that task.
func retryLaterIsReplaced(t *testing.T, b Broker) {
	tasks := make(deliveries)
	b.consume(t, tasks.handle)
	task := newTask()
	b.publish(t, task)
	tasks.next(t).answer <- &queue.RetryLater{Delay: time.Hour, Reason: "not yet"}
	b.expectWaiting(t, 1)
	task.Payload = []byte(`{"attempt":2}`)
	placed, err := b.Publisher.Publish(t.Context(), task)
	if err != nil || placed != queue.Replaced {
		t.Errorf("published over a delayed task: placed %d, error %v; want Replaced", placed, err)
	}
	got := tasks.next(t)
	if diff := cmp.Diff(string(task.Payload), string(got.task.Payload)); diff != "" {
		t.Errorf("payload (-want +got)\n%s", diff)
	}
	got.answer <- nil
	tasks.quiet(t)
}

func deadMayComeAgain(t *testing.T, b Broker) {
	tasks := make(deliveries)
	b.consume(t, tasks.handle)
	task := newTask()
	b.publish(t, task)
	tasks.next(t).answer <- &queue.Dead{Reason: "refused for good"}
	b.expectDepth(t, 0)
	tasks.quiet(t)
	b.publish(t, task)
	got := tasks.next(t)
	if got.task.Retried != 0 {
		t.Errorf("the new task began with %d retries", got.task.Retried)
	}
	got.answer <- nil
}

func faultAndPanicAreRetried(t *testing.T, b Broker) {
	calls := make(chan int, 3)
	var n atomic.Int64
	b.consume(t, func(context.Context, queue.Task) error {
		calls <- int(n.Add(1))
		switch n.Load() {
		case 1:
			return errFault
		case 2:
			panic("a handler that panics") //nolint:forbidigo // the tested case
		}
		return nil
	})
	b.publish(t, newTask())
	for want := 1; want <= 3; want++ {
		select {
		case <-calls:
		case <-time.After(timeout):
			t.Fatalf("delivery %d was not received", want)
		}
	}
	b.expectDepth(t, 0)
}

// stopWaits: a stop cancels the handler's context, so that it starts nothing new, and waits for the
// handler, because the broker must not interrupt a provider call.
func stopWaits(t *testing.T, b Broker) {
	tasks := make(deliveries)
	stop := b.consume(t, tasks.handle)
	b.publish(t, newTask())
	working := tasks.next(t)
	if _, ok := working.ctx.Deadline(); ok {
		t.Error("the handler's context has a deadline of the broker's")
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	select {
	case <-working.ctx.Done():
	case <-time.After(timeout):
		t.Error("the handler's context was not cancelled")
	}
	select {
	case <-stopped:
		t.Error("stopped while a handler was running")
	case <-time.After(500 * time.Millisecond):
	}
	working.answer <- nil
	select {
	case <-stopped:
	case <-time.After(timeout):
		t.Fatal("did not stop although the handler had ended")
	}
	b.expectDepth(t, 0) // it was acknowledged, not requeued
	b.publish(t, newTask())
	tasks.quiet(t)
}

func everyQueue(t *testing.T, b Broker) {
	tasks := make(deliveries)
	b.consume(t, tasks.handle)
	for _, name := range email.Queues() {
		task := newTask()
		task.Queue = name
		b.publish(t, task)
		got := tasks.next(t)
		got.answer <- nil
		if got.task.Queue != name {
			t.Errorf("published on %s, came from %s", name, got.task.Queue)
		}
	}
}

func restart(t *testing.T, b Broker) {
	if b.Restart == nil {
		t.Log("the adapter's broker cannot be restarted")
		return
	}
	tasks := make(deliveries)
	b.consume(t, tasks.handle)
	waiting, published := newTask(), newTask()
	b.publish(t, waiting)
	tasks.next(t).answer <- &queue.RetryLater{Delay: 3 * time.Second, Reason: "later"}
	b.expectWaiting(t, 1)
	b.Restart(t)
	eventually(t, "published after the restart", func() bool {
		placed, err := b.Publisher.Publish(t.Context(), published)
		return err == nil && (placed == queue.Queued || placed == queue.Busy)
	})
	seen := map[string]bool{}
	for range 2 {
		one := tasks.next(t)
		one.answer <- nil
		seen[one.task.ID] = true
	}
	if !seen[waiting.ID] || !seen[published.ID] {
		t.Errorf("after the restart only %v were delivered", seen)
	}
}

func lostReply(t *testing.T, b Broker) {
	if b.LoseReply == nil {
		t.Log("the adapter's broker never loses an answer")
		return
	}
	b.publish(t, newTask()) // establishes the connections
	b.LoseReply(t)
	task := newTask()
	if placed, err := b.Publisher.Publish(t.Context(), task); err != nil || placed == queue.Busy {
		t.Logf("the first call: placed %d, error %v", placed, err)
		b.publish(t, task)
	}
	b.expectDepth(t, 2)
}
