package rabbitmq_test

import (
	"context"
	"testing"
	"time"

	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/rabbitmq"
	"email-gateway/worker/internal/queue/rabbitmqtest"
)

func TestCrashBeforeAck(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	task := s.publish(s.publisher())
	tasks := make(deliveries)
	victim, err := rabbitmq.NewConsumer(rabbitmq.ConsumerConfig{
		Log: s.logger(), Conn: s.conn, Topology: s.topology, Queue: s.topology.Main.Name, Handler: tasks.handle,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	unacknowledged := tasks.next(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // its connection is closed immediately
	if err := victim.Stop(ctx); err == nil {
		t.Error("stopped although a task was running")
	}
	s.consume(tasks.handle)
	again := tasks.next(t)
	if again.tasks[0].ID != task.ID || again.tasks[0].Retried != 0 {
		t.Errorf("received: %+v", again.tasks[0])
	}
	if unacknowledged.tasks[0].Redelivered || !again.tasks[0].Redelivered {
		t.Errorf("Redelivered: %v, then %v, want false, then true", unacknowledged.tasks[0].Redelivered, again.tasks[0].Redelivered)
	}
	unacknowledged.all(nil) // too late: this acknowledges nothing, least of all the other consumer's task
	waittest.Until(t, "the late answer", func() bool { return s.log.Count("not acknowledged") == 1 })
	again.all(&queue.RetryLater{Reason: "held by another worker", Uncounted: true})
	last := tasks.next(t)
	if got := last.tasks[0]; got.ID != task.ID || got.Retried != 0 || !got.Redelivered {
		t.Errorf("received after a retry: %+v", got)
	}
	last.all(nil)
	s.expect(s.topology.Main.Name, 0)
}

func TestStop(t *testing.T) {
	t.Parallel()
	s := recipients(t)
	p := s.publisher()
	for range 5 {
		s.publish(p)
	}
	tasks := make(deliveries)
	_, stop := s.consume(tasks.handle, func(c *rabbitmq.ConsumerConfig) { c.BatchSize, c.BatchWait, c.Prefetch = 2, timeout, 5 })
	working := tasks.next(t)
	if _, ok := working.ctx.Deadline(); ok {
		t.Error("the handler's context has a deadline")
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	select {
	case <-working.ctx.Done():
	case <-time.After(timeout):
		t.Fatal("the handler's context was not cancelled")
	}
	select {
	case <-stopped:
		t.Error("stopped while a handler was running")
	case <-time.After(300 * time.Millisecond):
	}
	working.answer <- []error{nil, &queue.Dead{Reason: "too late for all but this"}}
	select {
	case <-stopped:
	case <-time.After(timeout):
		t.Fatal("did not stop although the handler had ended")
	}
	s.expect(s.topology.Main.Name, 3)
	s.expect(s.topology.DLQ.Name, 1)
}

func TestQueueDeleted(t *testing.T) {
	t.Parallel()
	for name, atOnce := range map[string]bool{"told": false, "forgotten": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queueDeleted(t, atOnce)
		})
	}
}

func queueDeleted(t *testing.T, atOnce bool) {
	s := mailing(t)
	tasks := make(deliveries)
	s.renewal = 300 * time.Millisecond
	s.consume(tasks.handle)
	p := s.publisher()
	s.publish(p)
	tasks.next(t).all(nil)
	if _, err := rabbitmqtest.Channel(t, s.url).QueueDelete(s.topology.Main.Name, false, false, false); err != nil {
		t.Fatal(err)
	}
	if !atOnce {
		waittest.Until(t, "the log", func() bool { return s.log.Count("cancelled the consumer") == 1 })
	}
	waittest.Until(t, "published", func() bool { _, err := p.Publish(t.Context(), s.task()); return err == nil })
	tasks.next(t).all(nil)
}
