package pipeline_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/outbox"
	"email-gateway/worker/internal/dbcheck"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/queue"
)

// failures counts the reported failures.
type failures struct {
	n     atomic.Int64
	first chan struct{}
}

func newFailures() *failures { return &failures{first: make(chan struct{})} }

func (f *failures) Failed() {
	if f.n.Add(1) == 1 {
		close(f.first)
	}
}

func (f *failures) Ask(context.Context) error { return nil }

// brokenLoader is a Loader whose reads fail with err, or are late if it is nil.
type brokenLoader struct {
	pipeline.Loader
	err  error
	late <-chan struct{}
}

func (l brokenLoader) Load(ctx context.Context, id uuid.UUID) (*outbox.LoadedEmail, error) {
	if l.err != nil {
		return nil, l.err
	}
	<-l.late
	return l.Loader.Load(ctx, id)
}

// A read that fails, for whatever reason, or is late makes the worker check whether it can use Postgres. In an outage the task
// is soon ready again for other workers, and its handler does not wait.
func TestHandle_ReportsFailedReads(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err   error
		delay time.Duration
	}{
		"unavailable":   {store.ErrUnavailable, time.Second},
		"login refused": {errors.New("pq: role is not permitted to log in"), 0},
		"late":          {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reported := newFailures()
			b := newBench(t, func(p *pipeline.Params) {
				p.Database, p.Loader = reported, brokenLoader{p.Loader, tt.err, reported.first}
			})
			id := b.Accept(t, b.company, nil)
			err := b.handle(t, id)
			var later *queue.RetryLater
			switch {
			case reported.n.Load() == 0:
				t.Error("no failure is reported")
			case tt.delay > 0 && (!errors.As(err, &later) || later.Delay > tt.delay):
				t.Errorf("the task ends with %v", err)
			case tt.err == nil:
				b.expect(t, id, email.Sent, 1, 0)
			}
		})
	}
}

// silentLoader is a Loader on a connection whose server is gone without notice.
type silentLoader struct{ pipeline.Loader }

func (silentLoader) Load(ctx context.Context, _ uuid.UUID) (*outbox.LoadedEmail, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// A worker whose Postgres stops answering leaves the tasks that it has taken to other workers within 5 s, also if Postgres still
// answered the first question.
func TestHandle_PostgresSilent(t *testing.T) {
	t.Parallel()
	for answered, within := range map[int]time.Duration{0: 5 * time.Second, 1: 7 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			check := dbcheck.New(slog.New(slog.DiscardHandler), func(ctx context.Context) error {
				if asked++; asked <= answered {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			})
			p := pipeline.New(pipeline.Params{Log: slog.New(slog.DiscardHandler), Loader: silentLoader{}, Database: check, Pacer: unpaced{}})
			start, id := time.Now(), uuid.NewString()
			err := p.Handle(t.Context(), queue.Task{ID: id, Queue: email.QueueNormal, Payload: []byte(`{"outboxId":"` + id + `"}`)})
			var later *queue.RetryLater
			if !errors.As(err, &later) || later.Delay > time.Second || time.Since(start) > within {
				t.Errorf("the task ends with %v after %s", err, time.Since(start))
			}
		})
	}
}

func TestHandle_ReportsNoFailure(t *testing.T) {
	t.Parallel()
	reported := newFailures()
	b := newBench(t, func(p *pipeline.Params) { p.Database = reported })
	id := b.Accept(t, b.company, nil)
	if err := b.handle(t, id); err != nil {
		t.Fatal(err)
	}
	task := b.task(t, id)
	task.ID, task.Payload = uuid.NewString(), []byte(`{"outboxId":"`+uuid.NewString()+`"}`) // of no email
	_ = b.pipeline.Handle(t.Context(), task)
	if n := reported.n.Load(); n > 0 {
		t.Errorf("%d failures are reported", n)
	}
}
