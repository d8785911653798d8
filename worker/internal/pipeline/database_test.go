package pipeline_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
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

// brokenLoader is a Loader whose reads fail with err, or are late if it is nil.
type brokenLoader struct {
	pipeline.Loader
	err  error
	late <-chan struct{}
}

func (l brokenLoader) Load(ctx context.Context, id uuid.UUID) (*store.LoadedEmail, error) {
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
