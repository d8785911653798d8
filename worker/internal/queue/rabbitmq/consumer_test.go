package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/shared/service"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/rabbitmq"
	"email-gateway/worker/internal/queue/rabbitmqtest"
)

var _ service.Service = (*rabbitmq.Consumer)(nil)

var errFault = errors.New("a fault of ours, about ana@example.com")

// deadly gives up every task.
func deadly(_ context.Context, tasks []queue.Task) []error {
	errs := make([]error, len(tasks))
	for i := range errs {
		errs[i] = &queue.Dead{Reason: "never"}
	}
	return errs
}

func TestConsume(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	tasks := make(desk)
	c, stop := s.consume(tasks.handle)
	task := s.publish(s.publisher())
	got := tasks.next(t)
	if diff := cmp.Diff([]queue.Task{task}, got.tasks); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	got.all(nil)
	stop()
	s.expect(s.topology.Main.Name, 0)
	if c.Ping(t.Context()) == nil {
		t.Error("a consumer that has stopped takes tasks")
	}
}

// Three tries with the pipeline's waits between them, then the DLQ.
func TestRetries(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	tasks := make(desk)
	_, stop := s.consume(tasks.handle)
	task := s.publish(s.publisher())
	waits := []time.Duration{0, s.topology.Retries[0].TTL, s.topology.Retries[1].TTL}
	var answered time.Time
	for try, wait := range waits {
		got := tasks.next(t)
		want := task
		want.Retried, want.LastTry = try, try == 2
		if diff := cmp.Diff(want, got.tasks[0]); diff != "" {
			t.Errorf("try %d (-want +got)\n%s", try, diff)
		}
		if waited := got.at.Sub(answered); try > 0 && (waited < wait-20*time.Millisecond || waited > wait+5*time.Second) {
			t.Errorf("try %d came after %s, want %s", try, waited, wait)
		}
		answered = time.Now()
		got.all(fmt.Errorf("try %d: %w", try, errFault)) // a fault is tried again as a RetryLater is
	}
	dead := s.get(s.topology.DLQ.Name)
	stop()
	s.expect(s.topology.Main.Name, 0)
	delete(dead.Headers, "x-delivery-count") // the broker's, of this delivery
	got := []any{dead.MessageId, string(dead.Body), dead.ContentType, dead.DeliveryMode, dead.Headers}
	want := []any{task.ID, string(task.Payload), "application/json", amqp.Persistent, amqp.Table{
		"x-retries": int32(2), "x-retry-reason": "try 2: a fault of ours, about a***@e***.com",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("in the DLQ (-want +got)\n%s", diff)
	}
}

func TestRetries_OneQueueForAll(t *testing.T) {
	t.Parallel()
	s := recipients(t)
	tasks := make(desk)
	s.consume(tasks.handle)
	s.publish(s.publisher())
	for try := range 4 {
		got := tasks.next(t)
		if task := got.tasks[0]; task.Retried != try || task.LastTry != (try == 3) {
			t.Errorf("try %d: retried %d, last %t", try, task.Retried, task.LastTry)
		}
		got.all(&queue.RetryLater{Reason: "the database is away"})
	}
	if got := s.get(s.topology.DLQ.Name).Headers["x-retry-reason"]; got != "the database is away" {
		t.Errorf("reason %q", got)
	}
}

// Whoever waits for somebody else spends no try, also not the last.
func TestRetries_Uncounted(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	tasks := make(desk)
	s.consume(tasks.handle)
	s.publish(s.publisher())
	for i, want := range []int{0, 0, 1, 1, 2, 2} {
		got := tasks.next(t)
		if got.tasks[0].Retried != want {
			t.Errorf("delivery %d: retried %d, want %d", i, got.tasks[0].Retried, want)
		}
		switch {
		case i == 5:
			got.all(nil)
		case i%2 == 0:
			got.all(&queue.RetryLater{Reason: "held by another worker", Uncounted: true})
		default:
			got.all(&queue.RetryLater{Reason: "failed"})
		}
	}
}

func TestDead(t *testing.T) {
	t.Parallel()
	s := recipients(t)
	s.consume(deadly)
	task := s.publish(s.publisher())
	got := s.get(s.topology.DLQ.Name)
	if got.MessageId != task.ID || got.Headers["x-retries"] != int32(0) || got.Headers["x-retry-reason"] != "never" {
		t.Errorf("in the DLQ: %s, %v", got.MessageId, got.Headers)
	}
}

// Other clients write the header as they like, and add others.
func TestForeignHeaders(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	tasks := make(desk)
	s.consume(tasks.handle)
	s.publish(s.publisher())
	tasks.next(t).all(nil)
	channel := rabbitmqtest.Channel(t, s.url)
	for _, one := range []struct {
		header any
		want   int
	}{{int32(1), 1}, {int64(2), 2}, {int16(1), 1}, {byte(2), 2}, {int64(-5), 0}, {int64(1) << 40, 1<<31 - 1}, {"2", 0}, {nil, 0}} {
		if err := channel.Publish(s.topology.Main.Exchange, s.topology.Main.Key, true, false, amqp.Publishing{
			MessageId: "1", Headers: amqp.Table{"x-retries": one.header, "traceparent": "00-abc"},
		}); err != nil {
			t.Fatal(err)
		}
		got := tasks.next(t)
		if task := got.tasks[0]; task.Retried != one.want || task.LastTry != (one.want >= 2) {
			t.Errorf("%T %v: retried %d, last %t", one.header, one.header, task.Retried, task.LastTry)
		}
		got.all(&queue.Dead{Reason: "seen"})
		if dead := s.get(s.topology.DLQ.Name); dead.Headers["traceparent"] != "00-abc" {
			t.Errorf("headers that are not ours got lost: %v", dead.Headers)
		}
	}
}

func TestBatches(t *testing.T) {
	t.Parallel()
	s := recipients(t)
	p := s.publisher()
	for range 25 {
		s.publish(p)
	}
	tasks := make(desk)
	s.consume(tasks.handle, func(c *rabbitmq.ConsumerConfig) { c.BatchSize, c.BatchWait = 10, 500*time.Millisecond })
	seen := map[string]bool{}
	for _, want := range []int{10, 10, 5} { // the last one by time
		got := tasks.next(t)
		if len(got.tasks) != want {
			t.Errorf("a batch of %d, want %d", len(got.tasks), want)
		}
		for _, task := range got.tasks {
			seen[task.ID] = true
		}
		got.all(nil)
	}
	if len(seen) != 25 {
		t.Errorf("%d tasks came", len(seen))
	}
	s.expect(s.topology.Main.Name, 0)
}

// Every task of a batch has a verdict of its own.
func TestBatches_MixedVerdicts(t *testing.T) {
	t.Parallel()
	s := recipients(t)
	p := s.publisher()
	for range 3 {
		s.publish(p)
	}
	tasks := make(desk)
	s.consume(tasks.handle, func(c *rabbitmq.ConsumerConfig) { c.BatchSize, c.BatchWait = 3, patience })
	first := tasks.next(t)
	first.answer <- []error{nil, &queue.Dead{Reason: "malformed"}} // and none for the third
	if got := s.get(s.topology.DLQ.Name).MessageId; got != first.tasks[1].ID {
		t.Errorf("in the DLQ stands %s, want %s", got, first.tasks[1].ID)
	}
	for range 2 { // it comes alone: two more fill its batch
		s.publish(p)
	}
	second := tasks.next(t)
	found := false
	for _, task := range second.tasks {
		found = found || task.ID == first.tasks[2].ID && task.Retried == 1
	}
	if !found {
		t.Errorf("the task without a verdict did not come again: %v", second.tasks)
	}
	second.all(nil)
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	s := recipients(t)
	p := s.publisher()
	for range 4 {
		s.publish(p)
	}
	tasks := make(desk)
	s.consume(tasks.handle, func(c *rabbitmq.ConsumerConfig) { c.Concurrency, c.BatchSize, c.BatchWait = 2, 2, patience })
	one, other := tasks.next(t), tasks.next(t)
	one.all(nil)
	other.all(nil)
}

func TestPanic(t *testing.T) {
	t.Parallel()
	s := recipients(t)
	var calls atomic.Int64
	done := make(chan int, 1)
	s.consume(func(_ context.Context, tasks []queue.Task) []error {
		if calls.Add(1) == 1 {
			panic("about ana@example.com") //nolint:forbidigo // it is what the test is about
		}
		done <- tasks[0].Retried
		return []error{nil}
	})
	s.publish(s.publisher())
	select {
	case retried := <-done:
		if retried != 1 {
			t.Errorf("retried %d times", retried)
		}
	case <-time.After(patience):
		t.Fatal("the task did not come again")
	}
	if s.log.count("panicked") != 1 || s.log.count("ana@") != 0 {
		t.Error("the panic was not logged, or with an address")
	}
}

// What a consumer that died had in its hands comes again.
func TestCrashBeforeAck(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	task := s.publish(s.publisher())
	tasks := make(desk)
	victim, err := rabbitmq.NewConsumer(rabbitmq.ConsumerConfig{
		Log: s.logger(), Conn: s.conn, Topology: s.topology, Queue: s.topology.Main.Name, Handler: tasks.handle,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	inHand := tasks.next(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no patience: its connection is cut
	if err := victim.Stop(ctx); err == nil {
		t.Error("stopped although a task was in work")
	}
	s.consume(tasks.handle)
	again := tasks.next(t)
	if again.tasks[0].ID != task.ID || again.tasks[0].Retried != 0 {
		t.Errorf("came: %+v", again.tasks[0])
	}
	inHand.all(nil) // too late: it acknowledges nothing, and certainly not the other's
	eventually(t, "the late answer", func() bool { return s.log.count("not acknowledged") == 1 })
	again.all(nil)
	s.expect(s.topology.Main.Name, 0)
}

// A handler is told of the stop and waited for; its batch is acknowledged, and what was
// not begun stays.
func TestStop(t *testing.T) {
	t.Parallel()
	s := recipients(t)
	p := s.publisher()
	for range 5 {
		s.publish(p)
	}
	tasks := make(desk)
	_, stop := s.consume(tasks.handle, func(c *rabbitmq.ConsumerConfig) { c.BatchSize, c.BatchWait, c.Prefetch = 2, patience, 5 })
	working := tasks.next(t)
	if _, ok := working.ctx.Deadline(); ok {
		t.Error("the handler's context has a deadline")
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	select {
	case <-working.ctx.Done():
	case <-time.After(patience):
		t.Fatal("the handler was not told of the stop")
	}
	select {
	case <-stopped:
		t.Error("stopped while a handler was at work")
	case <-time.After(300 * time.Millisecond):
	}
	working.answer <- []error{nil, &queue.Dead{Reason: "too late for all but this"}}
	select {
	case <-stopped:
	case <-time.After(patience):
		t.Fatal("did not stop although the handler had ended")
	}
	s.expect(s.topology.Main.Name, 3)
	s.expect(s.topology.DLQ.Name, 1)
}

// The broker says when it takes a queue away, unless somebody, here the publisher, makes
// a new one of that name at once.
func TestQueueTakenAway(t *testing.T) {
	t.Parallel()
	for name, atOnce := range map[string]bool{"told": false, "forgotten": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queueTakenAway(t, atOnce)
		})
	}
}

func queueTakenAway(t *testing.T, atOnce bool) {
	s := mailing(t)
	tasks := make(desk)
	s.renewal = 300 * time.Millisecond
	s.consume(tasks.handle)
	p := s.publisher()
	s.publish(p)
	tasks.next(t).all(nil)
	if _, err := rabbitmqtest.Channel(t, s.url).QueueDelete(s.topology.Main.Name, false, false, false); err != nil {
		t.Fatal(err)
	}
	if !atOnce {
		eventually(t, "the log", func() bool { return s.log.count("took the queue away") == 1 })
	}
	eventually(t, "published", func() bool { _, err := p.Publish(t.Context(), s.task()); return err == nil })
	tasks.next(t).all(nil)
}

// A task that cannot be passed on stays with us until it can.
func TestRetryQueueMissing(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	tasks := make(desk)
	s.consume(tasks.handle)
	task := s.publish(s.publisher())
	first := tasks.next(t)
	if _, err := rabbitmqtest.Channel(t, s.url).QueueDelete(s.topology.Retries[0].Name, false, false, false); err != nil {
		t.Fatal(err)
	}
	first.all(&queue.RetryLater{Reason: "failed"})
	second := tasks.next(t)
	if got := second.tasks[0]; got.ID != task.ID || got.Retried != 1 {
		t.Errorf("came %+v", got)
	}
	second.all(nil)
	s.expect(s.topology.Main.Name, 0)
}

// On the DLQ nothing is passed on: what is not done comes again, later each time.
func TestDLQ(t *testing.T) {
	t.Parallel()
	s := recipients(t)
	_, stop := s.consume(deadly)
	task := s.publish(s.publisher())
	s.expect(s.topology.DLQ.Name, 1)
	stop()
	tasks := make(desk)
	s.consume(tasks.handle, ofDLQ)
	var answered time.Time
	for i, wait := range []time.Duration{0, time.Second, 2 * time.Second} {
		got := tasks.next(t)
		if waited := got.at.Sub(answered); i > 0 && (waited < wait || waited > wait+5*time.Second) {
			t.Errorf("delivery %d came after %s, want %s", i, waited, wait)
		}
		if got.tasks[0].ID != task.ID || got.tasks[0].Queue != s.topology.DLQ.Name || got.tasks[0].LastTry {
			t.Errorf("came %+v", got.tasks[0])
		}
		answered = time.Now()
		if i == 2 {
			got.all(nil)
		} else {
			got.all(&queue.RetryLater{Reason: "still away"})
		}
	}
	s.expect(s.topology.DLQ.Name, 0)
}

func TestNewConsumer_Mistakes(t *testing.T) {
	t.Parallel()
	for want, config := range map[string]rabbitmq.ConsumerConfig{
		"neither": {Queue: "email:send"},
		"65535":   {Queue: rabbitmq.MailingJobs, Concurrency: 100, BatchSize: 1000},
	} {
		config.Log = stage{log: &lines{}}.logger()
		config.Topology = rabbitmq.Mailing()
		if _, err := rabbitmq.NewConsumer(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want something about %s", err, want)
		}
	}
}
