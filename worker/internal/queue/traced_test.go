package queue_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/telemetry"
	"email-gateway/shared/telemetry/telemetrytest"
	"email-gateway/worker/internal/queue"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// traced runs do with a tracer and returns the spans.
func traced(t *testing.T, do func(telemetry.Tracer)) []telemetrytest.Span {
	t.Helper()
	c := telemetrytest.Start(t)
	tracing, err := telemetry.NewTracing(t.Context(), slog.New(slog.DiscardHandler), "s", "e",
		telemetry.TraceSettings{OTLPEndpoint: c.URL, Sampler: "parentbased_always_on"})
	if err != nil {
		t.Fatal(err)
	}
	do(tracing.Tracer())
	if err := tracing.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c.Spans()
}

// The handler runs in a child span of the publishing span, and its result is recorded without its
// text.
func TestTraced(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		answer  error
		failure string
	}{
		{nil, ""},
		{&queue.RetryLater{Reason: "secret words"}, ""},
		{&queue.Dead{Reason: "secret words"}, "DEAD"},
		{errors.New("secret words"), "FAULT"},
	} {
		var inside string
		spans := traced(t, func(tracer telemetry.Tracer) {
			err := queue.Traced(tracer, func(ctx context.Context, _ queue.Task) error {
				inside = telemetry.TraceIDOf(ctx)
				return tt.answer
			})(t.Context(), queue.Task{ID: "id-1", Queue: "email:send", Traceparent: parent})
			if !errors.Is(err, tt.answer) {
				t.Errorf("answered %v, want %v", err, tt.answer)
			}
		})
		if len(spans) != 1 || spans[0].Name != "process email:send" || spans[0].Parent != parent[36:52] ||
			inside != parent[3:35] || spans[0].Failure != tt.failure || spans[0].Attributes["outbox.id"] != "id-1" {
			t.Errorf("%v: inside %s, spans %v", tt.answer, inside, spans)
		}
	}
}

// Each task of a batch has its own span in its own trace.
func TestTracedBatch(t *testing.T) {
	t.Parallel()
	tasks := []queue.Task{
		{ID: "a", Queue: "recipients_queue", Traceparent: parent},
		{ID: "b", Queue: "recipients_queue"},
		{ID: "c", Queue: "recipients_queue", Traceparent: "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
	}
	spans := traced(t, func(tracer telemetry.Tracer) {
		answers := queue.TracedBatch(tracer, func(ctx context.Context, _ []queue.Task) []error {
			if telemetry.Traceparent(ctx) != "" {
				t.Error("the work on all tasks belongs to the trace of one")
			}
			return []error{nil, &queue.Dead{}, nil}
		})(t.Context(), tasks)
		if len(answers) != 3 {
			t.Errorf("answers %v", answers)
		}
	})
	got := map[string]int{}
	for _, s := range spans {
		got[s.Parent+" "+s.Failure]++
	}
	if diff := cmp.Diff(map[string]int{parent[36:52] + " ": 2, " DEAD": 1}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	spans = traced(t, func(tracer telemetry.Tracer) {
		queue.TracedBatch(tracer, func(ctx context.Context, _ []queue.Task) []error {
			if telemetry.TraceIDOf(ctx) != parent[3:35] {
				t.Error("the work on a single task is not part of its trace")
			}
			return nil
		})(t.Context(), tasks[:1])
	})
	if len(spans) != 1 {
		t.Errorf("%d spans", len(spans))
	}
}
