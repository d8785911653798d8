package pipeline_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/provider"
)

// panicking is a Loader with a fault.
type panicking struct{ pipeline.Loader }

func (panicking) Load(context.Context, uuid.UUID) (*outbox.LoadedEmail, error) { panic("a fault") }

// The first panic of a task is the queue's, which logs its stack. Later ones postpone the email in the outbox: on the queue such
// tasks would take the room of other companies.
func TestHandle_PanicsAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(p *pipeline.Params) { p.Loader = panicking{p.Loader} })
	id := b.Accept(t, b.company, nil)
	b.exec(t, "UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = $1", id)
	task := b.task(t, id)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the first panic did not reach the queue")
			}
		}()
		_ = b.pipeline.Handle(t.Context(), task)
	}()
	b.expect(t, id, email.Enqueued, 0, 0)

	task.Retried = 1
	if err := b.pipeline.Handle(t.Context(), task); err != nil {
		t.Errorf("the second panic: %v, want the task to end", err)
	}
	b.expect(t, id, email.Pending, 0, 0)
}

// A task whose retries waited on the queue has the attempt of its publication in its payload; its log line has the row's.
func TestHandle_FaultAfterRetries(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	broken := false
	b := newBench(t, func(p *pipeline.Params) {
		p.Log = telemetry.NewLogger(&log, "email-gateway-worker", "test", "info")
		p.Advancer = &interrupted{p.Advancer, func(outbox.Transition) (before, after bool) { return broken, false }}
	})
	b.sender.fail(2, provider.Failure{Outcome: provider.Retry, Code: "X", Category: provider.TransientError})
	id := b.Accept(t, b.company, nil)
	task := b.task(t, id)
	for range 2 {
		b.exec(t, "UPDATE email_outbox SET next_at = now() WHERE id = $1", id)
		_ = b.pipeline.Handle(t.Context(), task)
		task.Retried++
	}
	b.expect(t, id, email.RetryScheduled, 2, 0)
	b.exec(t, "UPDATE email_outbox SET next_at = now() WHERE id = $1", id)
	broken = true
	if err := b.pipeline.Handle(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	lines := linesOf(t, &log)
	if last := lines[len(lines)-1]; last["message"] != "task failed again, email postponed" || last["attempt"] != 3.0 {
		t.Errorf("%v", last)
	}
}

// If the database refuses to record that SES accepted an email, the worker repeats the statement until it succeeds: otherwise
// the email would be sent twice.
func TestRecord_RefusedAcceptance(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	id := b.Accept(t, b.company, nil)
	b.exec(t, "ALTER TABLE email_outbox ADD CONSTRAINT refused CHECK (status <> 'SENT')")
	if err := b.handle(t, id); err != nil {
		t.Errorf("handle: %v", err)
	}
	b.expect(t, id, email.Processing, 1, 0)
	b.exec(t, "ALTER TABLE email_outbox DROP CONSTRAINT refused")
	if err := b.pipeline.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.expect(t, id, email.Sent, 1, 0)
	if len(b.sender.sent) != 1 {
		t.Errorf("%d calls, want 1", len(b.sender.sent))
	}
}
