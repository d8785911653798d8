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

// tolerance is how far from its time a delayed task may come: brokers count in
// whole seconds, and look at their delayed tasks now and then.
const (
	early = 750 * time.Millisecond
	late  = 1500 * time.Millisecond
)

func publishAndHandle(t *testing.T, b Broker) {
	tasks := make(desk)
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
	tasks := make(desk)
	b.consume(t, tasks.handle)
	tasks.next(t).answer <- nil
	tasks.quiet(t)
	b.publish(t, task) // completed: the queue has forgotten it
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
		t.Fatalf("of a queue that is not there: %d, error %v", got, err)
	}
	for range 3 {
		b.publish(t, newTask())
	}
	b.expectDepth(t, 3)
	got, err = Depth(t.Context(), b.Publisher, email.QueueHigh)
	if err != nil || got != 0 {
		t.Errorf("of another queue: %d, error %v", got, err)
	}

	tasks := make(desk)
	b.consume(t, tasks.handle)
	one, other, third := tasks.next(t), tasks.next(t), tasks.next(t)
	b.expectDepth(t, 3) // in work counts
	one.answer <- nil
	b.expectDepth(t, 2)
	other.answer <- &queue.RetryLater{Delay: time.Hour, Reason: "not yet"} // waiting counts too
	third.answer <- &queue.Dead{Reason: "never"}
	b.expectDepth(t, 1)
}

// room: a grant is what the window has left, it replaces the publisher's last one, and what
// was published counts by itself after Release.
func room(t *testing.T, b Broker) {
	reserve := func(window, most, want int) {
		t.Helper()
		got, err := b.Publisher.Reserve(t.Context(), email.QueueNormal, window, most)
		if err != nil || got.Granted != want {
			t.Errorf("window %d, most %d: %+v, error %v; want %d granted", window, most, got, err, want)
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
	tasks := make(desk)
	b.consume(t, tasks.handle)
	task := newTask()
	b.publish(t, task)
	working := tasks.next(t)
	placed, err := b.Publisher.Publish(t.Context(), task)
	if err != nil || placed != queue.Busy {
		t.Errorf("while it is in work: placed %d, error %v; want Busy", placed, err)
	}
	working.answer <- nil
	eventually(t, "published again", func() bool {
		placed, err := b.Publisher.Publish(t.Context(), task)
		return err == nil && placed == queue.Queued
	})
	tasks.next(t).answer <- nil
}

func retryLater(t *testing.T, b Broker) {
	tasks := make(desk)
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
			t.Errorf("asked for %s, came after %s", delay, waited)
		}
		if first.task.Retried != 0 || second.task.Retried != 1 {
			t.Errorf("retried %d, then %d times; want 0, then 1", first.task.Retried, second.task.Retried)
		}
	}
}

// retryLaterIsReplaced: whoever publishes an id whose task waits for its retry has
// decided that it is due now.
func retryLaterIsReplaced(t *testing.T, b Broker) {
	tasks := make(desk)
	b.consume(t, tasks.handle)
	task := newTask()
	b.publish(t, task)
	tasks.next(t).answer <- &queue.RetryLater{Delay: time.Hour, Reason: "not yet"}
	b.expectWaiting(t, 1)
	task.Payload = []byte(`{"attempt":2}`)
	placed, err := b.Publisher.Publish(t.Context(), task)
	if err != nil || placed != queue.Replaced {
		t.Errorf("published over a waiting task: placed %d, error %v; want Replaced", placed, err)
	}
	got := tasks.next(t)
	if diff := cmp.Diff(string(task.Payload), string(got.task.Payload)); diff != "" {
		t.Errorf("payload (-want +got)\n%s", diff)
	}
	got.answer <- nil
	tasks.quiet(t)
}

func deadMayComeAgain(t *testing.T, b Broker) {
	tasks := make(desk)
	b.consume(t, tasks.handle)
	task := newTask()
	b.publish(t, task)
	tasks.next(t).answer <- &queue.Dead{Reason: "refused for good"}
	b.expectDepth(t, 0)
	tasks.quiet(t)
	b.publish(t, task)
	got := tasks.next(t)
	if got.task.Retried != 0 {
		t.Errorf("its new life began with %d retries", got.task.Retried)
	}
	got.answer <- nil
}

func faultAndPanicAreRetried(t *testing.T, b Broker) {
	deliveries := make(chan int, 3)
	var n atomic.Int64
	b.consume(t, func(context.Context, queue.Task) error {
		deliveries <- int(n.Add(1))
		switch n.Load() {
		case 1:
			return errFault
		case 2:
			panic("a handler that panics") //nolint:forbidigo // it is what the case is about
		}
		return nil
	})
	b.publish(t, newTask())
	for want := 1; want <= 3; want++ {
		select {
		case <-deliveries:
		case <-time.After(patience):
			t.Fatalf("delivery %d never came", want)
		}
	}
	b.expectDepth(t, 0)
}

// stopWaits: a handler is told of the stop, so that it begins nothing new, and is
// waited for, because nothing of the broker's may cut a call to the provider.
func stopWaits(t *testing.T, b Broker) {
	tasks := make(desk)
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
	case <-time.After(patience):
		t.Error("the handler was not told of the stop")
	}
	select {
	case <-stopped:
		t.Error("stopped while a handler was at work")
	case <-time.After(500 * time.Millisecond):
	}
	working.answer <- nil
	select {
	case <-stopped:
	case <-time.After(patience):
		t.Fatal("did not stop although the handler had ended")
	}
	b.expectDepth(t, 0) // it was acknowledged, not put back
	b.publish(t, newTask())
	tasks.quiet(t)
}

func everyQueue(t *testing.T, b Broker) {
	tasks := make(desk)
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
	tasks := make(desk)
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
		t.Errorf("after the restart came only %v", seen)
	}
}

func lostReply(t *testing.T, b Broker) {
	if b.LoseReply == nil {
		t.Log("the adapter's broker answers always")
		return
	}
	b.publish(t, newTask()) // connections stand
	b.LoseReply(t)
	task := newTask()
	if placed, err := b.Publisher.Publish(t.Context(), task); err != nil || placed == queue.Busy {
		t.Logf("the first call: placed %d, error %v", placed, err)
		b.publish(t, task)
	}
	b.expectDepth(t, 2)
}
