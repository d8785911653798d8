package rabbitmq_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/logtest"
	"email-gateway/shared/service"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/rabbitmq"
)

var _ service.Service = (*rabbitmq.Consumer)(nil)

var errFault = errors.New("internal error, about ana@example.com")

// deadly fails every task permanently.
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
	tasks := make(deliveries)
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

func TestBatches(t *testing.T) {
	t.Parallel()
	s := recipients(t)
	p := s.publisher()
	for range 25 {
		s.publish(p)
	}
	tasks := make(deliveries)
	s.consume(tasks.handle, func(c *rabbitmq.ConsumerConfig) { c.BatchSize, c.BatchWait = 10, 500*time.Millisecond })
	seen := map[string]bool{}
	for _, want := range []int{10, 10, 5} { // the last one after BatchWait
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

// Every task of a batch has its own result.
func TestBatches_MixedResults(t *testing.T) {
	t.Parallel()
	s := recipients(t)
	p := s.publisher()
	for range 3 {
		s.publish(p)
	}
	tasks := make(deliveries)
	s.consume(tasks.handle, func(c *rabbitmq.ConsumerConfig) { c.BatchSize, c.BatchWait = 3, timeout })
	first := tasks.next(t)
	first.answer <- []error{nil, &queue.Dead{Reason: "malformed"}} // and none for the third
	if got := s.get(s.topology.DLQ.Name).MessageId; got != first.tasks[1].ID {
		t.Errorf("the DLQ has %s, want %s", got, first.tasks[1].ID)
	}
	for range 2 { // it is redelivered alone: two more fill its batch
		s.publish(p)
	}
	second := tasks.next(t)
	found := false
	for _, task := range second.tasks {
		found = found || task.ID == first.tasks[2].ID && task.Retried == 1
	}
	if !found {
		t.Errorf("the task without a result was not redelivered: %v", second.tasks)
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
	tasks := make(deliveries)
	s.consume(tasks.handle, func(c *rabbitmq.ConsumerConfig) { c.Concurrency, c.BatchSize, c.BatchWait = 2, 2, timeout })
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
			panic("about ana@example.com")
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
	case <-time.After(timeout):
		t.Fatal("the task was not redelivered")
	}
	if s.log.Count("panicked") != 1 || s.log.Count("ana@") != 0 {
		t.Error("the panic was not logged, or with an address")
	}
}

func TestNewConsumer_InvalidConfig(t *testing.T) {
	t.Parallel()
	for want, config := range map[string]rabbitmq.ConsumerConfig{
		"neither": {Queue: "email:send"},
		"65535":   {Queue: rabbitmq.MailingJobs, Concurrency: 100, BatchSize: 1000},
	} {
		config.Log = fixture{log: &logtest.Buffer{}}.logger()
		config.Topology = rabbitmq.Mailing()
		if _, err := rabbitmq.NewConsumer(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want something about %s", err, want)
		}
	}
}
