package dispatcher

import (
	"context"
	"errors"
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
	// publishTime bounds a batch's stay at the broker. What is on its way to a frozen Redis
	// by then is waited for as long as one pipeline may take.
	publishTime = 2 * time.Second
	// batchTime bounds a batch from the reservation of its room on. The reservation lasts longer,
	// and the rescuer leaves the emails alone for as long, so a dispatcher that was frozen
	// or waited for Postgres after the reservation publishes nothing when it goes on.
	batchTime = 4 * time.Second
)

// result is the outcome of one row of a batch.
type result int

const (
	untouched result = iota // the time was over before anything was sent to the broker
	doubtful                // the time was over before the broker answered: the task may be there
	enqueued
	replaced // in place of a task that no worker would have been given
	standing // it was enqueued before
	busy
	refused
)

// publishBatch puts the tasks of a batch on the queue and records the outcome. A row that is
// refused while others are taken is postponed: it must not stop its lane. When none is taken
// it is the broker that fails, and with it the round. Of the batch the first fit rows are
// published. It returns how many rows were released.
func (f *feeder) publishBatch(ctx, committing context.Context, from source, taken store.Batch, fit int, reserved time.Time) (int, error) {
	crashpoint.At(crashpoint.DispatchTaken)
	publishing, cancel := context.WithTimeout(ctx, min(publishTime, time.Until(reserved.Add(batchTime))))
	results, failure := f.publishAll(publishing, taken.Rows[:fit])
	results = append(results, make([]result, len(taken.Rows)-fit)...) // untouched
	cancel()
	crashpoint.At(crashpoint.DispatchPublished)
	var (
		published []uuid.UUID
		released  []store.Release
		taskless  []uuid.UUID // late retries that had no task when they were published
		postponed []string
	)
	for i, row := range taken.Rows {
		switch results[i] {
		case enqueued, replaced, standing:
			published = append(published, row.ID)
			if row.HadTask && results[i] == enqueued {
				taskless = append(taskless, row.ID)
			}
		case busy:
			released = append(released, store.Release{ID: row.ID, Delay: busyPause})
		case refused:
			postponed = append(postponed, row.ID.String())
			released = append(released, store.Release{ID: row.ID, Delay: busyPause, NextAt: row.NextAt})
		case doubtful:
			if !from.leased() {
				released = append(released, store.Release{ID: row.ID, NextAt: row.NextAt})
			}
		case untouched:
			released = append(released, store.Release{ID: row.ID, NextAt: row.NextAt})
		}
	}
	if len(published) == 0 && len(taken.Rows) > 1 { // it is not for the rows that they are refused
		for i := range released {
			released[i].Delay = 0
		}
	}
	f.countLost(committing, taken.TakenAt, taskless)
	if err := from.record(committing, taken, published, released); err != nil {
		return 0, errors.Join(failure, err)
	}
	crashpoint.At(crashpoint.DispatchRecorded)
	f.metrics.done(len(published), len(released))
	// Other dispatchers may have seen these lanes empty, and this one is stopping, or does not reach the
	// broker. The rows keep their next_at, which may lie before the bound from which another dispatcher
	// reads a lane, so the wake-up asks for a full listing.
	if len(released) > 0 && failure != nil && (len(published) == 0 || ctx.Err() != nil) {
		if err := f.lanes.outbox.Wake(committing); err != nil {
			f.log.Debug("dispatchers not woken: their next listing finds the rows", "error", err)
		}
	}
	if len(published) == 0 && failure != nil {
		return len(released), fmt.Errorf("publish %d tasks: %w", len(taken.Rows), failure)
	}
	if n := len(postponed); n > 0 {
		f.log.Warn("tasks not enqueued", "queue", f.name, "count", n,
			telemetry.OutboxID, telemetry.IDs(n, func(i int) string { return postponed[i] }), "error", email.MaskText(failure.Error()))
	}
	return len(released), nil
}

// countLost reports retries whose task did not exist any more. The task of a retry that is
// late for another reason still exists, and is replaced; or it ran between the take and the
// publishing, and a worker has finished with the email.
func (f *feeder) countLost(ctx context.Context, takenAt time.Time, taskless []uuid.UUID) {
	if len(taskless) == 0 {
		return
	}
	n, err := f.lanes.outbox.StillTaken(ctx, takenAt, taskless)
	if err != nil {
		f.log.Warn("lost tasks not counted", "queue", f.name, "count", len(taskless), "error", err)
		return
	}
	if n > 0 {
		f.metrics.lost.Add(float64(n))
		f.log.Warn("retries whose task was lost are on the queue again", "queue", f.name, "count", n)
	}
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
	case err != nil && ctx.Err() != nil && errors.Is(err, queue.ErrNotPublished):
		return untouched, err
	case err != nil && ctx.Err() != nil:
		return doubtful, err
	case err != nil:
		span.Fail("REFUSED")
		return refused, err
	case placed == queue.Busy:
		return busy, nil
	case placed == queue.Standing:
		return standing, nil
	case placed == queue.Replaced:
		return replaced, nil
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
