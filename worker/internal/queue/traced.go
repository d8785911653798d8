package queue

import (
	"context"
	"errors"

	"email-gateway/shared/telemetry"
)

// Traced is a handler whose work on a task is a span, below the one that the task came
// from. With the zero Tracer it is the handler itself.
func Traced(tracer telemetry.Tracer, handle Handler) Handler {
	if !tracer.On() {
		return handle
	}
	return func(ctx context.Context, task Task) error {
		ctx, span := begin(ctx, tracer, task)
		defer span.End()
		err := handle(ctx, task)
		tell(span, err)
		return err
	}
}

// TracedBatch is Traced for a handler of several tasks: each has its span, as long as the
// work on all of them. What the handler itself begins belongs to the task's trace only if
// there is one task.
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
		defer func() { // a panic is the caller's to catch; the spans end all the same
			for i, span := range spans {
				if i < len(answers) {
					tell(span, answers[i])
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

// tell marks the span by what the handler asked for. Its words stay out: they may quote
// a provider.
func tell(span telemetry.Span, err error) {
	var (
		later *RetryLater
		dead  *Dead
	)
	switch {
	case err == nil:
	case errors.As(err, &later):
		span.Text("messaging.verdict", "RETRY")
	case errors.As(err, &dead):
		span.Fail("DEAD")
	default:
		span.Fail("FAULT")
	}
}
