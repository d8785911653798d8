package rabbitmq_test

import (
	"testing"

	"email-gateway/worker/internal/queue"
)

// The trace is sent in a header, through every retry.
func TestTraceparent_KeptThroughRetries(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	p, deliveries := s.publisher(), make(deliveries)
	s.consume(deliveries.handle)
	task := s.task()
	task.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if _, err := p.Publish(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	first := deliveries.next(t)
	first.all(&queue.RetryLater{Reason: "a test"})
	second := deliveries.next(t)
	second.all(nil)
	for _, d := range []delivery{first, second} {
		if got := d.tasks[0].Traceparent; got != task.Traceparent {
			t.Errorf("traceparent %q, want %q", got, task.Traceparent)
		}
	}
	s.publish(p)
	last := deliveries.next(t)
	last.all(nil)
	if got := last.tasks[0].Traceparent; got != "" {
		t.Errorf("a task without a trace came with %q", got)
	}
}
