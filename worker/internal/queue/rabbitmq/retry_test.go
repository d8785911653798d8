package rabbitmq_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/rabbitmq"
	"email-gateway/worker/internal/queue/rabbitmqtest"
)

func TestRetries(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	tasks := make(deliveries)
	_, stop := s.consume(tasks.handle)
	task := s.publish(s.publisher())
	waits := []time.Duration{0, s.topology.Retries[0].TTL, s.topology.Retries[1].TTL}
	var answered time.Time
	for try, wait := range waits {
		got := tasks.next(t)
		want := task
		want.Retried, want.LastTry, want.Redelivered = try, try == 2, try > 0
		if diff := cmp.Diff(want, got.tasks[0]); diff != "" {
			t.Errorf("try %d (-want +got)\n%s", try, diff)
		}
		if waited := got.at.Sub(answered); try > 0 && waited < wait-20*time.Millisecond {
			t.Errorf("try %d was delivered after %s, want %s or more", try, waited, wait)
		}
		answered = time.Now()
		got.all(fmt.Errorf("try %d: %w", try, errFault)) // a fault is retried like a RetryLater
	}
	dead := s.get(s.topology.DLQ.Name)
	stop()
	s.expect(s.topology.Main.Name, 0)
	delete(dead.Headers, "x-delivery-count") // set by the broker for this delivery
	got := []any{dead.MessageId, string(dead.Body), dead.ContentType, dead.DeliveryMode, dead.Headers}
	want := []any{task.ID, string(task.Payload), "application/json", amqp.Persistent, amqp.Table{
		"x-retries": int32(2), "x-retry-reason": "try 2: internal error, about a***@e***.com",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("in the DLQ (-want +got)\n%s", diff)
	}
}

func TestRetries_OneQueueForAll(t *testing.T) {
	t.Parallel()
	s := recipients(t)
	tasks := make(deliveries)
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

func TestRetries_Uncounted(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	tasks := make(deliveries)
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

func TestForeignHeaders(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	tasks := make(deliveries)
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
			t.Errorf("foreign headers were lost: %v", dead.Headers)
		}
	}
}

func TestRetryQueueMissing(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	tasks := make(deliveries)
	s.consume(tasks.handle)
	task := s.publish(s.publisher())
	first := tasks.next(t)
	if _, err := rabbitmqtest.Channel(t, s.url).QueueDelete(s.topology.Retries[0].Name, false, false, false); err != nil {
		t.Fatal(err)
	}
	first.all(&queue.RetryLater{Reason: "failed"})
	second := tasks.next(t)
	if got := second.tasks[0]; got.ID != task.ID || got.Retried != 1 {
		t.Errorf("received %+v", got)
	}
	second.all(nil)
	s.expect(s.topology.Main.Name, 0)
}

// refusing is a pipeline of mailing jobs whose first retry queue refuses all messages.
func refusing(t *testing.T) fixture {
	t.Helper()
	s := mailing(t)
	s.aside = 10 * time.Millisecond
	arguments := amqp.Table{"x-max-length": int32(0), "x-overflow": "reject-publish"}
	if _, err := rabbitmqtest.Channel(t, s.url).QueueDeclare(s.topology.Retries[0].Name, true, false, false, false, arguments); err != nil {
		t.Fatal(err)
	}
	return s
}

// A task that cannot be republished delays no other task, and Ping reports it. It is republished when that is possible.
func TestRetryQueueRefuses(t *testing.T) {
	t.Parallel()
	s := refusing(t)
	tasks := make(deliveries)
	c, _ := s.consume(tasks.handle)
	p := s.publisher()
	for range 3 {
		s.publish(p)
		tasks.next(t).all(&queue.RetryLater{Reason: "failed"})
	}
	for range 3 {
		task := s.publish(p)
		got := tasks.next(t)
		if got.tasks[0].ID != task.ID {
			t.Errorf("received %+v", got.tasks)
		}
		got.all(nil)
	}
	if err := c.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "3 tasks cannot be republished") || !c.Consuming() {
		t.Errorf("ping: %v, consuming %t", err, c.Consuming())
	}
	if _, err := rabbitmqtest.Channel(t, s.url).QueueDelete(s.topology.Retries[0].Name, false, false, false); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got := tasks.next(t)
		if got.tasks[0].Retried != 1 {
			t.Errorf("received %+v", got.tasks)
		}
		got.all(nil)
	}
	waittest.Until(t, "health", func() bool { return c.Ping(t.Context()) == nil })
	s.expect(s.topology.Main.Name, 0)
}

// Tasks that cannot be republished return to the queue when the consumer stops. Not all that fail are set aside.
func TestRetryQueueRefuses_Stop(t *testing.T) {
	t.Parallel()
	s := refusing(t)
	tasks := make(deliveries)
	c, stop := s.consume(tasks.handle)
	p := s.publisher()
	const most = 17 // 16 batches set aside and one still being republished
	for range most + 1 {
		s.publish(p)
	}
	for range most {
		tasks.next(t).all(&queue.RetryLater{Reason: "failed"})
	}
	waittest.Until(t, "all fail", func() bool {
		err := c.Ping(t.Context())
		return err != nil && strings.Contains(err.Error(), fmt.Sprint(most, " tasks cannot be republished"))
	})
	s.expect(s.topology.Main.Name, 1)
	stop()
	s.expect(s.topology.Main.Name, most+1)
}

func TestDLQ(t *testing.T) {
	t.Parallel()
	s := recipients(t)
	_, stop := s.consume(deadly)
	task := s.publish(s.publisher())
	s.expect(s.topology.DLQ.Name, 1)
	stop()
	tasks := make(deliveries)
	s.consume(tasks.handle, ofDLQ)
	var answered time.Time
	for i, wait := range []time.Duration{0, time.Second, 2 * time.Second} {
		got := tasks.next(t)
		if waited := got.at.Sub(answered); i > 0 && waited < wait {
			t.Errorf("delivery %d was after %s, want %s or more", i, waited, wait)
		}
		if got.tasks[0].ID != task.ID || got.tasks[0].Queue != s.topology.DLQ.Name || got.tasks[0].LastTry {
			t.Errorf("received %+v", got.tasks[0])
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

// Failed tasks are ready messages during the wait: the queue metrics, which cannot count a consumer's, show them to an alert.
func TestDLQ_ReadyDuringWait(t *testing.T) {
	t.Parallel()
	for name, concurrency := range map[string]int{"one batch at a time": 1, "two": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const tasks = 3
			s := recipients(t)
			publish := s.publishing(true)
			var calls atomic.Int64
			c, _ := s.consume(func(_ context.Context, batch []queue.Task) []error {
				calls.Add(1)
				errs := make([]error, len(batch))
				for i := range errs {
					errs[i] = &queue.RetryLater{Reason: "permission denied"}
				}
				return errs
			}, ofDLQ, func(c *rabbitmq.ConsumerConfig) { c.BatchSize, c.Prefetch, c.Concurrency = 2, 2*tasks, concurrency })
			waittest.Until(t, "consuming", func() bool { return c.Ping(t.Context()) == nil })
			for range tasks {
				publish()
			}
			inspector := rabbitmq.NewInspector(s.logger(), s.conn, s.topology)
			defer func() { _ = inspector.Close() }()
			// Tasks that are returned and delivered again at once are ready only for a moment.
			const measurements = 20
			waittest.Until(t, "all tasks ready in the wait after a failure", func() bool {
				before := calls.Load()
				for range measurements {
					states, err := inspector.Inspect(t.Context())
					if err != nil || states[s.topology.DLQ.Name].Messages != tasks {
						return false
					}
				}
				return before > 0 && calls.Load() == before
			})
			if err := c.Ping(t.Context()); err != nil {
				t.Errorf("in the wait: %v", err)
			}
		})
	}
}
