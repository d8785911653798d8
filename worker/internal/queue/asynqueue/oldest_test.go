package asynqueue_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/redistest"
)

// Oldest is the age of the oldest pending task; active tasks do not count.
func TestOldest(t *testing.T) {
	t.Parallel()
	url, prefix := redistest.Shared(t)
	conn := parse(t, url).WithPrefix(prefix)
	p := asynqueue.NewPublisher(conn)
	t.Cleanup(func() { _ = p.Close() })
	age := func() time.Duration {
		t.Helper()
		age, err := p.Oldest(t.Context(), email.QueueNormal)
		if err != nil {
			t.Fatal(err)
		}
		return age
	}
	if got := age(); got != 0 {
		t.Errorf("an empty queue is %s old", got)
	}
	start := time.Now()
	for range 2 {
		if _, err := p.Publish(t.Context(), queue.Task{ID: uuid.NewString(), Queue: email.QueueNormal, Payload: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		<-time.After(50 * time.Millisecond)
	}
	if got := age(); got < 95*time.Millisecond || got > time.Since(start) {
		t.Errorf("age %s, want that of the first task, %s at most", got, time.Since(start))
	}
	taken, done := make(chan struct{}, 2), make(chan struct{})
	stop := consume(t, conn, func(context.Context, queue.Task) error {
		taken <- struct{}{}
		<-done
		return nil
	})
	for range 2 {
		<-taken
	}
	if got := age(); got != 0 {
		t.Errorf("with both tasks active its age is %s", got)
	}
	close(done)
	if err := stop(context.Background()); err != nil {
		t.Error(err)
	}
}
