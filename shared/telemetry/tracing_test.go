package telemetry_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/environment"
	"email-gateway/shared/service"
	"email-gateway/shared/telemetry"
	"email-gateway/shared/telemetry/telemetrytest"
)

// find returns the span of the name.
func find(t *testing.T, c *telemetrytest.Collector, name string) telemetrytest.Span {
	t.Helper()
	for _, s := range c.Spans() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no span %q", name)
	return telemetrytest.Span{}
}

func settings(t *testing.T, environ ...string) telemetry.TraceSettings {
	t.Helper()
	var s telemetry.TraceSettings
	f := environment.Read(environ, &s)
	s.CheckTraces(&f)
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	return s
}

// A trace that begins with a caller's header continues through a row or a task, and the collector
// receives three nested spans.
func TestTracing_OneTraceAcrossPrograms(t *testing.T) {
	t.Parallel()
	r := telemetrytest.Start(t)
	on := settings(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+r.URL+"/")
	const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	carried := caller
	for _, name := range []string{"api", "dispatcher", "worker"} {
		tracing, err := telemetry.NewTracing(t.Context(), slog.New(slog.DiscardHandler), "email-gateway-"+name, "test", on)
		if err != nil {
			t.Fatal(err)
		}
		ctx, span := tracing.Tracer().Start(telemetry.WithTraceparent(context.Background(), carried), name, telemetry.Consumer)
		span.Text("outbox.id", "0199")
		span.Text("reason", "no mailbox ana@example.com here")
		span.Number("tries", 3)
		span.Fail("SES_THROTTLING")
		if id := telemetry.TraceIDOf(ctx); id != caller[3:35] {
			t.Errorf("trace %s, want the caller's", id)
		}
		carried = telemetry.Traceparent(ctx)
		span.End()
		if err := tracing.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	parent := caller[36:52]
	for _, name := range []string{"api", "dispatcher", "worker"} {
		span := find(t, r, name)
		want := telemetrytest.Span{
			Service: "email-gateway-" + name, Version: service.Version(), Name: name, Trace: caller[3:35], ID: span.ID, Parent: parent, Failure: "SES_THROTTLING",
			Attributes: map[string]string{
				"outbox.id": "0199", "reason": "no mailbox a***@e***.com here", "tries": "3", "error.type": "SES_THROTTLING",
			},
		}
		if diff := cmp.Diff(want, span); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		parent = span.ID
	}
}

// With tracing off nothing is created and nothing is passed on; a caller's header has no effect.
func TestTracing_Off(t *testing.T) {
	// It counts allocations, so it runs alone.
	for _, environ := range [][]string{nil, {"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_SDK_DISABLED=true"}} {
		tracing, err := telemetry.NewTracing(t.Context(), slog.New(slog.DiscardHandler), "s", "e", settings(t, environ...))
		if err != nil {
			t.Fatal(err)
		}
		tracer := tracing.Tracer()
		ctx := t.Context()
		allocated := testing.AllocsPerRun(100, func() {
			ctx, span := tracer.Start(ctx, "step", telemetry.Internal)
			span.Text("a", "b")
			span.Number("n", 1)
			span.Fail("X")
			span.End()
			if telemetry.Traceparent(ctx) != "" || telemetry.TraceIDOf(ctx) != "" || span.On() || tracer.On() {
				t.Error("something is traced")
			}
		})
		if allocated != 0 {
			t.Errorf("%v allocations per span", allocated)
		}
		if err := tracing.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A trace that is not sampled is not sent, and is passed on as such, so that no new trace is
// started.
func TestTracing_NotSampled(t *testing.T) {
	t.Parallel()
	r := telemetrytest.Start(t)
	tracing, err := telemetry.NewTracing(t.Context(), slog.New(slog.DiscardHandler), "s", "e", settings(t,
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+r.URL+"/v1/traces", "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, span := tracing.Tracer().Start(t.Context(), "first", telemetry.Server)
	carried := telemetry.Traceparent(ctx)
	if !strings.HasSuffix(carried, "-00") {
		t.Errorf("carried %q, want one that is not sampled", carried)
	}
	_, below := tracing.Tracer().Start(telemetry.WithTraceparent(t.Context(), carried), "second", telemetry.Consumer)
	below.End()
	span.End()
	if err := tracing.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(r.Spans()); n != 0 {
		t.Errorf("%d spans were sent", n)
	}
}

func TestWithTraceparent_IgnoresOtherFields(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "x", "00-00000000000000000000000000000000-b7ad6b7169203331-01", "ana@example.com", strings.Repeat("0", 5000)} {
		if got := telemetry.Traceparent(telemetry.WithTraceparent(t.Context(), text)); got != "" {
			t.Errorf("traceparent %q is read as %q", text, got)
		}
	}
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if got := telemetry.Traceparent(telemetry.WithTraceparent(t.Context(), good)); got != good {
		t.Errorf("traceparent %q is read as %q", good, got)
	}
}

// An unreachable collector is logged in the log's format and has no other effect.
func TestTracing_NoCollector(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	tracing, err := telemetry.NewTracing(t.Context(), telemetry.NewLogger(&log, "s", "e", "info"), "s", "e",
		settings(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://user:s3cr3t@127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	_, span := tracing.Tracer().Start(t.Context(), "step", telemetry.Internal)
	span.End()
	start := time.Now()
	if err := tracing.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("the stop took %s", took)
	}
	if strings.Contains(log.String(), "s3cr3t") {
		t.Errorf("the log holds the password: %s", log.String())
	}
	for _, line := range lines(t, &log) {
		if line["service"] != "s" {
			t.Errorf("line %v", line)
		}
	}
}

func TestTraceSettings_Invalid(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ variable, want string }{
		{"OTEL_EXPORTER_OTLP_ENDPOINT=localhost:4318", "OTEL_EXPORTER_OTLP_ENDPOINT: must be an http:// or https:// URL"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=grpc://x", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: must be an http:// or https:// URL"},
		{"OTEL_EXPORTER_OTLP_HEADERS=s3cr3t", "OTEL_EXPORTER_OTLP_HEADERS: must be name=value"},
		{"OTEL_EXPORTER_OTLP_TRACES_HEADERS=a=s3cr3t%zz", "OTEL_EXPORTER_OTLP_TRACES_HEADERS: must be name=value"},
		{"OTEL_TRACES_SAMPLER=sometimes", "OTEL_TRACES_SAMPLER: must be always_on"},
		{"OTEL_TRACES_SAMPLER_ARG=2", "OTEL_TRACES_SAMPLER_ARG: must be 0 to 1"},
	} {
		var s telemetry.TraceSettings
		f := environment.Read([]string{tt.variable}, &s)
		s.CheckTraces(&f)
		if err := f.Err(); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v, want %q", tt.variable, err, tt.want)
		}
	}
}
