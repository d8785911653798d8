package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/queue"
)

const (
	// publishers put tasks on the queue at the same time. The adapter sends what comes
	// at the same time together: 64 take half the processor time of 16.
	publishers = 64
	// enqueueTime bounds a round's stay at the broker, while its rows are locked. What is on
	// its way to a frozen Redis by then is waited for as long as one pipeline may take.
	enqueueTime = 2 * time.Second
)

// result is what became of one row of a round.
type result int

const (
	untouched result = iota // the time was over: it stays due
	enqueued
	standing // it was enqueued before
	busy
	refused
)

// enqueue puts the tasks of a batch on the queue. A row that is refused while others
// are taken is postponed: it must not stop its lane. When none is taken it is the
// broker that fails, and with it the round.
//
// lost is how many of them are retries that the queue had lost. One that stands there, ready,
// is late because the workers are.
func (f *feeder) enqueue(ctx context.Context, due []store.DueRow) (done store.Dispatched, lost int, err error) {
	ctx, cancel := context.WithTimeout(ctx, enqueueTime)
	defer cancel()
	results, err := f.publishAll(ctx, due)
	done.BusyFor = busyPause
	var refusals []uuid.UUID
	for i, row := range due {
		switch results[i] {
		case enqueued, standing:
			done.Enqueued = append(done.Enqueued, row.ID)
			if row.Status == email.RetryScheduled && results[i] == enqueued {
				lost++
			}
		case busy:
			done.Busy = append(done.Busy, row.ID)
		case refused:
			refusals = append(refusals, row.ID)
		case untouched:
		}
	}
	if len(done.Enqueued)+len(done.Busy) == 0 {
		return store.Dispatched{}, 0, fmt.Errorf("enqueue %d tasks: %w", len(due), err)
	}
	if len(refusals) > 0 {
		f.log.Warn("tasks not enqueued", "queue", f.name, "count", len(refusals), "error", email.MaskText(err.Error()))
		done.Busy = append(done.Busy, refusals...)
	}
	f.metrics.done(len(done.Enqueued), len(done.Busy))
	return done, lost, nil
}

// enqueueProbe is enqueue for the one email that may pass a shut gate. One that is refused
// is postponed, although it is alone: it was the oldest due, and would be chosen again and
// again while the others, which might open the gate, wait.
func (f *feeder) enqueueProbe(ctx context.Context, due []store.DueRow) (store.Dispatched, error) {
	ctx, cancel := context.WithTimeout(ctx, enqueueTime)
	defer cancel()
	results, err := f.publishAll(ctx, due)
	for i, row := range due {
		switch results[i] {
		case enqueued, standing:
			f.metrics.done(1, 0)
			return store.Dispatched{Enqueued: []uuid.UUID{row.ID}}, nil
		case refused:
			f.log.Warn("probe not enqueued, another will be", "queue", f.name, "error", email.MaskText(err.Error()))
			f.metrics.done(0, 1)
			return store.Dispatched{Busy: []uuid.UUID{row.ID}, BusyFor: probePause}, nil
		case busy:
			f.metrics.done(0, 1)
			return store.Dispatched{Busy: []uuid.UUID{row.ID}, BusyFor: busyPause}, nil
		case untouched:
		}
	}
	return store.Dispatched{}, fmt.Errorf("enqueue probe: %w", err)
}

// publishAll returns the rows' results and one of the errors, if there were any.
func (f *feeder) publishAll(ctx context.Context, due []store.DueRow) ([]result, error) {
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
				if results[i], err = f.publish(ctx, due[i]); err != nil {
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

func (f *feeder) publish(ctx context.Context, row store.DueRow) (result, error) {
	if ctx.Err() != nil {
		return untouched, context.Cause(ctx)
	}
	begun := time.Now()
	job, trace := f.payload(row, begun)
	task := queue.Task{ID: row.ID.String(), Queue: f.name, Payload: job, Traceparent: trace}
	ctx, span := f.span(ctx, &task)
	defer span.End()
	placed, err := f.queue.Publish(ctx, task)
	f.metrics.published(time.Since(begun))
	crashpoint.At(crashpoint.DispatchQueued)
	switch {
	case err != nil && ctx.Err() != nil:
		return untouched, err // it may stand there: the next round will see
	case err != nil:
		span.Fail("REFUSED")
		return refused, err
	case placed == queue.Busy:
		return busy, nil
	case placed == queue.Standing:
		return standing, nil
	}
	return enqueued, nil
}

// span is the task's way to its queue, which the task then names as its origin. An email
// that belongs to no trace, such as one of a mailing, begins one here.
func (f *feeder) span(ctx context.Context, task *queue.Task) (context.Context, telemetry.Span) {
	ctx, span := f.tracer.Start(telemetry.WithTraceparent(ctx, task.Traceparent), "publish "+f.name, telemetry.Producer)
	if !span.On() {
		return ctx, span // what the row says goes on as it is
	}
	task.Traceparent = telemetry.Traceparent(ctx)
	span.Text("messaging.destination.name", f.name)
	span.Text("outbox.id", task.ID)
	return ctx, span
}
