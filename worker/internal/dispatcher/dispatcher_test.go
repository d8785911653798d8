package dispatcher_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue"
)

func TestDispatch_AllQueues(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	company := b.Company(t)
	want := map[uuid.UUID]string{
		b.Accept(t, company, withPriority(1)):  email.QueueHigh,
		b.Accept(t, company, withPriority(5)):  email.QueueNormal,
		b.Accept(t, company, withPriority(10)): email.QueueLow,
	}
	tasks := make(chan queue.Task, 3)
	b.consume(t, 3, func(_ context.Context, task queue.Task) error { tasks <- task; return nil })
	start := time.Now()
	b.dispatch(t, b.params())
	for range want {
		select {
		case task := <-tasks:
			id := uuid.MustParse(task.ID)
			if task.Queue != want[id] {
				t.Errorf("came from %q, want %q", task.Queue, want[id])
			}
			job, err := email.DecodeSendJob(task.Payload)
			if err != nil {
				t.Fatal(err)
			}
			if err := job.Validate(5); err != nil {
				t.Errorf("the payload is not valid: %v", err)
			}
			if job.OutboxID != task.ID || job.Attempt != 1 || job.EnqueuedAt.Before(start) || job.EnqueuedAt.After(time.Now()) {
				t.Errorf("payload of %s: %+v", task.ID, job)
			}
			b.expectStatus(t, id, email.Enqueued)
		case <-time.After(timeout):
			t.Fatal("a task was not received")
		}
	}
}

func TestDispatch_DueTimes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	company := b.Company(t)
	later := b.Accept(t, company, func(e *outbox.NewEmail) { e.SendAt = time.Now().Add(time.Hour) })
	expired := b.Accept(t, company, nil)
	b.set(t, expired, `expires_at = now() - interval '1 s'`)
	retryWaits := b.Accept(t, company, nil)
	b.set(t, retryWaits, `status = 'RETRY_SCHEDULED', attempts = 1, enqueued_at = now(), next_at = now() - interval '1 s'`)
	retryLost := b.Accept(t, company, nil)
	b.set(t, retryLost, `status = 'RETRY_SCHEDULED', attempts = 1, enqueued_at = now(), next_at = now() - interval '6 s'`)

	// Its retry waits in the outbox only: it is due like any other row.
	retryDue := b.Accept(t, company, nil)
	b.set(t, retryDue, `status = 'RETRY_SCHEDULED', attempts = 1, next_at = now() - interval '10 s'`)

	// The workers are busy: its task is ready on the queue, so nothing is lost.
	retryStands := b.Accept(t, company, nil)
	b.set(t, retryStands, `status = 'RETRY_SCHEDULED', attempts = 1, enqueued_at = now(), next_at = now() - interval '6 s'`)
	if _, err := b.publisher.Publish(t.Context(), queue.Task{ID: retryStands.String(), Queue: email.QueueNormal, Payload: []byte("{}")}); err != nil {
		t.Fatal(err)
	}

	p := b.params()
	b.dispatch(t, p)
	b.expectStatus(t, retryLost, email.Enqueued)
	b.expectStatus(t, retryStands, email.Enqueued)
	b.expectStatus(t, retryDue, email.Enqueued)
	waittest.Until(t, "one lost retry", func() bool {
		return b.log.Count("retries whose task was lost") == 1 && gauge(t, p.Registry, "outbox_lost_retries_total", "queue", email.QueueNormal) == 1
	})
	b.expectStays(t, later, email.Pending)
	b.expectStatus(t, expired, email.Enqueued) // for the worker, which expires it
	if got := b.status(t, retryWaits); got != email.RetryScheduled {
		t.Errorf("a retry whose task is still queued: %s", got)
	}
	b.set(t, later, `next_at = now()`)
	b.expectStatus(t, later, email.Enqueued)
}

func TestDispatch_ClosedLanes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	paused, suspended, parked, open := b.Company(t), b.Company(t), b.Company(t), b.Company(t)
	ids := map[string]uuid.UUID{
		"paused": b.Accept(t, paused, nil), "suspended": b.Accept(t, suspended, nil), "parked": b.Accept(t, parked, nil),
	}
	b.change(t, `UPDATE dispatch_lanes SET paused_at = now() WHERE company_id = $1`, paused)
	b.change(t, `UPDATE companies SET suspended_at = now() WHERE id = $1`, suspended)
	b.change(t, `UPDATE dispatch_lanes SET parked_until = now() + interval '1 h' WHERE company_id = $1`, parked)
	b.dispatch(t, b.params())
	b.expectStatus(t, b.Accept(t, open, nil), email.Enqueued)
	for name, id := range ids {
		if got := b.status(t, id); got != email.Pending {
			t.Errorf("%s: %s", name, got)
		}
	}
	b.change(t, `UPDATE dispatch_lanes SET paused_at = NULL WHERE company_id = $1`, paused)
	b.change(t, `UPDATE companies SET suspended_at = NULL WHERE id = $1`, suspended)
	b.change(t, `UPDATE dispatch_lanes SET parked_until = now() WHERE company_id = $1`, parked)
	for _, id := range ids {
		b.expectStatus(t, id, email.Enqueued)
	}
}

func (b *bench) change(t *testing.T, statement string, parameters ...any) {
	t.Helper()
	if _, err := b.SQL.ExecContext(t.Context(), statement, parameters...); err != nil {
		t.Fatal(err)
	}
}

// An email that a person sends again has an archived task on the queue.
func TestDispatch_ReplacesArchivedTask(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.Accept(t, b.Company(t), nil)
	attempts := make(chan int, 2)
	b.consume(t, 1, func(_ context.Context, task queue.Task) error {
		job, err := email.DecodeSendJob(task.Payload)
		if err != nil {
			return err
		}
		attempts <- job.Attempt
		return &queue.Dead{Reason: "refused for good"}
	})
	b.dispatch(t, b.params())
	expect(t, attempts, 1)
	b.expectStatus(t, id, email.Enqueued)
	waittest.Until(t, "an empty queue", func() bool { return b.depth(t, email.QueueNormal) == 0 })

	b.set(t, id, `status = 'PENDING', attempts = 3, throttles = 1`)
	expect(t, attempts, 3)
}

// An email may be due again while its last task is active.
func TestDispatch_WaitsForActiveTask(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.Accept(t, b.Company(t), nil)
	working, release := make(chan int, 2), make(chan struct{})
	b.consume(t, 2, func(context.Context, queue.Task) error {
		working <- 1
		<-release
		return nil
	})
	b.dispatch(t, b.params())
	expect(t, working, 1)
	b.expectStatus(t, id, email.Enqueued)
	b.set(t, id, `status = 'PENDING'`)
	for range 2 { // it is taken and released again and again
		b.expectStatus(t, id, email.Enqueued)
		b.expectStatus(t, id, email.Pending)
	}
	select {
	case <-working:
		t.Error("the task is active twice")
	default:
	}
	close(release)
	expect(t, working, 1)
	b.expectStatus(t, id, email.Enqueued)
}

func expect(t *testing.T, values <-chan int, want int) {
	t.Helper()
	select {
	case got := <-values:
		if got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	case <-time.After(timeout):
		t.Fatalf("%d was not received", want)
	}
}

// Neither an invalid payload nor a task that the broker refuses blocks the emails behind it.
func TestDispatch_InvalidRowsDoNotBlock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	company := b.Company(t)
	noJob, refused, sound := b.Accept(t, company, nil), b.Accept(t, company, nil), b.Accept(t, company, nil)
	b.set(t, noJob, `payload = '["no job"]'`)

	payloads := make(chan string, 1)
	b.consume(t, 1, func(_ context.Context, task queue.Task) error {
		if task.ID == noJob.String() {
			payloads <- string(task.Payload)
		}
		return nil
	})
	p := b.params()
	var refusals atomic.Int64
	p.Queue = &recorder{Publisher: b.publisher, refuse: func(id string) error {
		if id == refused.String() {
			refusals.Add(1)
			return errors.New("no such task, said ana@example.com")
		}
		return nil
	}}
	b.dispatch(t, p)
	b.expectStatus(t, sound, email.Enqueued)
	b.expectStatus(t, noJob, email.Enqueued)
	if got := <-payloads; got != `["no job"]` {
		t.Errorf("payload %s, want it unchanged", got)
	}
	waittest.Until(t, "the refused one is tried again and released", func() bool {
		return refusals.Load() > 2 && b.status(t, refused) == email.Pending
	})
	if b.log.Count("ana@example.com") > 0 {
		t.Errorf("the log shows an address:\n%s", b.log)
	}
}

func TestDispatch_WakesUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	listener, err := lane.NewListener(b.URL, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Stop(context.Background()) })
	p := b.params()
	p.Wakes, p.PollInterval, p.ListInterval = listener, time.Hour, time.Hour
	b.dispatch(t, p)
	company := b.Company(t)
	for range 3 {
		id := b.Accept(t, company, nil)
		waittest.Until(t, "dispatched after a wake-up", func() bool {
			if err := b.Store.Wake(t.Context()); err != nil {
				t.Fatal(err)
			}
			return b.status(t, id) == email.Enqueued
		})
	}
}

// The task of a late retry runs between take and publish: the retry is not lost, whatever the
// worker did. A retry without a task is lost, also if a worker has begun with its new one.
func TestDispatch_LateRetryRunsMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	company := b.Company(t)
	late := map[string]string{ // changes of the row until its task is published
		"sent":    `status = 'SENT', processed_at = now()`,
		"dropped": `status = 'PENDING', enqueued_at = NULL, next_at = now() + interval '1 min'`,
		"again":   `status = 'RETRY_SCHEDULED', enqueued_at = now(), next_at = now() + interval '20 s'`,
		"begun":   `status = 'PROCESSING', claim_token = gen_random_uuid(), lease_until = now() + interval '1 min'`,
		"lost":    `status = 'ENQUEUED'`,
	}
	ids := make(map[string]string)
	for name := range late {
		id := b.Accept(t, company, nil)
		b.set(t, id, `status = 'RETRY_SCHEDULED', attempts = 1, enqueued_at = now(), next_at = now() - interval '6 s'`)
		ids[id.String()] = name
	}
	p := b.params()
	p.Queue = &recorder{Publisher: b.publisher, refuse: func(id string) error {
		b.set(t, uuid.MustParse(id), late[ids[id]])
		return nil
	}}
	b.dispatch(t, p)
	waittest.Until(t, "two lost retries", func() bool {
		return gauge(t, p.Registry, "outbox_lost_retries_total", "queue", email.QueueNormal) == 2
	})
	if n := b.log.Count("retries whose task was lost"); n != 1 {
		t.Errorf("%d lines about lost retries", n)
	}
}
