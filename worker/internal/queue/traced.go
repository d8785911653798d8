package queue

import (
	"context"
	"errors"

	"email-gateway/shared/telemetry"
)

// Traced returns a handler that makes a span for each task, as a child of the span that published it. With the zero Tracer it
// returns the handler itself.
func Traced(tracer telemetry.Tracer, handle Handler) Handler {
	if !tracer.On() {
		return handle
	}
	return func(ctx context.Context, task Task) error {
		ctx, span := begin(ctx, tracer, task)
		defer span.End()
		err := handle(ctx, task)
		finish(span, err)
		return err
	}
}

// TracedBatch is Traced for a batch handler: each task has a span that lasts as long as the batch.
// Spans made by the handler are children of the task's span only if the batch has one task.
func TracedBatch(tracer telemetry.Tracer, handle BatchHandler) BatchHandler {
	if !tracer.On() {
		return handle
	}
	return func(ctx context.Context, tasks []Task) []error {
		spans := make([]telemetry.Span, len(tasks))
		inner := ctx
		for i, task := range tasks {
			var of context.Context
			of, spans[i] = begin(ctx, tracer, task)
			if len(tasks) == 1 {
				inner = of
			}
		}
		var answers []error
		defer func() { // ends the spans also if the handler panics
			for i, span := range spans {
				if i < len(answers) {
					finish(span, answers[i])
				}
				span.End()
			}
		}()
		answers = handle(inner, tasks)
		return answers
	}
}

func begin(ctx context.Context, tracer telemetry.Tracer, task Task) (context.Context, telemetry.Span) {
	ctx, span := tracer.Start(telemetry.WithTraceparent(ctx, task.Traceparent), "process "+task.Queue, telemetry.Consumer)
	span.Text("messaging.destination.name", task.Queue)
	span.Text("outbox.id", task.ID)
	span.Number("messaging.redelivered", int64(task.Retried))
	return ctx, span
}

// finish sets the span's status from the handler's result. It omits the error text, which may contain text of a provider.
func finish(span telemetry.Span, err error) {
	var (
		later *RetryLater
		dead  *Dead
	)
	switch {
	case err == nil:
	case errors.As(err, &later):
		span.Text("messaging.outcome", "RETRY")
	case errors.As(err, &dead):
		span.Fail("DEAD")
	default:
		span.Fail("FAULT")
	}
}
