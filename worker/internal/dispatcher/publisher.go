package dispatcher

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/queue"
)

// publishers is the number of concurrent publishes of a batch. The adapter sends concurrent
// commands in one pipeline: 64 take half the CPU time of 16.
const publishers = 64

// publisher publishes rows as tasks of one queue.
type publisher struct {
	name    string // of the queue
	queue   queue.Publisher
	payload payload
	metrics queueMetrics
	tracer  telemetry.Tracer
}

// publishAll publishes the rows and returns their results, and one of the errors, if any.
func (p *publisher) publishAll(ctx context.Context, due []dispatch.DueRow) ([]result, error) {
	results := make([]result, len(due))
	failure := atomic.Pointer[error]{}
	var next atomic.Int64
	var working sync.WaitGroup
	for range min(publishers, len(due)) {
		working.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(due) {
					return
				}
				var err error
				if results[i], err = p.publish(ctx, due[i]); err != nil {
					failure.Store(&err)
				}
			}
		})
	}
	working.Wait()
	if err := failure.Load(); err != nil {
		return results, *err
	}
	return results, nil
}

func (p *publisher) publish(ctx context.Context, row dispatch.DueRow) (result, error) {
	if ctx.Err() != nil {
		return notSent, context.Cause(ctx)
	}
	start := time.Now()
	job, trace := p.payload(row, start)
	task := queue.Task{ID: row.ID.String(), Queue: p.name, Payload: job, Traceparent: trace}
	ctx, span := p.span(ctx, &task)
	defer span.End()
	placed, err := p.queue.Publish(ctx, task)
	p.metrics.published(time.Since(start))
	crashpoint.At(crashpoint.DispatchQueued)
	switch {
	case err != nil && ctx.Err() != nil && errors.Is(err, queue.ErrNotPublished):
		return notSent, err
	case err != nil && ctx.Err() != nil:
		return unconfirmed, err
	case err != nil:
		span.Fail("REFUSED")
		return refused, err
	case placed == queue.Busy:
		return busy, nil
	case placed == queue.AlreadyQueued:
		return alreadyQueued, nil
	case placed == queue.Replaced:
		return replaced, nil
	}
	return enqueued, nil
}

// span starts the publish span and makes it the parent of the task's spans. An email without a
// trace, such as one of a mailing, starts a new trace here.
func (p *publisher) span(ctx context.Context, task *queue.Task) (context.Context, telemetry.Span) {
	ctx, span := p.tracer.Start(telemetry.WithTraceparent(ctx, task.Traceparent), "publish "+p.name, telemetry.Producer)
	if !span.On() {
		return ctx, span // the task keeps the trace of its row
	}
	task.Traceparent = telemetry.Traceparent(ctx)
	span.Text("messaging.destination.name", p.name)
	span.Text("outbox.id", task.ID)
	return ctx, span
}
