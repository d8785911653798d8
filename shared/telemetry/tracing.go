package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
)

const (
	// flushTime bounds the last export: a stopping program must not wait for an unreachable
	// collector.
	flushTime = 5 * time.Second
	// complainEvery limits the log lines about a failing collector.
	complainEvery = time.Minute
)

// Tracing exports a program's spans to a collector. It is a service.Service that must be first in a
// program's list, so that it stops last and exports the others' spans. Spans are sent in the
// background; those that a collector does not accept are dropped without other effects.
type Tracing struct {
	log      *slog.Logger
	provider *trace.TracerProvider // nil = off
}

// NewTracing returns a Tracing, which does not connect yet. name and environment are NewLogger's
// service and environment.
func NewTracing(ctx context.Context, log *slog.Logger, name, environment string, s TraceSettings) (*Tracing, error) {
	t := &Tracing{log: log}
	if !s.On() {
		return t, nil
	}
	t.redirectErrors()
	// The exporter reads its other variables itself: headers, timeout, certificates.
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(s.url()))
	if err != nil {
		return nil, fmt.Errorf("make trace exporter: %w", err)
	}
	about, err := resource.New(ctx, resource.WithFromEnv(), resource.WithAttributes(
		attribute.String("service.name", name),
		attribute.String("service.version", service.Version()),
		attribute.String("service.instance.id", uuid.NewString()),
		attribute.String("deployment.environment.name", environment),
	))
	if err != nil {
		return nil, fmt.Errorf("describe the program to the trace collector: %w", err)
	}
	t.provider = trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about), trace.WithSampler(s.sampler()))
	return t, nil
}

// redirectErrors redirects the library's errors to our log. The setting is global to the process.
func (t *Tracing) redirectErrors() {
	otel.SetLogger(logr.FromSlogHandler(t.log.Handler()))
	var next atomic.Int64
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		now := time.Now()
		if due := next.Load(); now.UnixNano() < due || !next.CompareAndSwap(due, now.Add(complainEvery).UnixNano()) {
			return
		}
		t.log.Warn("spans lost: the trace collector does not accept them", "error", email.MaskText(err.Error()))
	}))
}

// Tracer creates the spans that are exported.
func (t *Tracing) Tracer() Tracer {
	if t.provider == nil {
		return Tracer{}
	}
	return Tracer{t.provider.Tracer("email-gateway")}
}

// Start does nothing: spans are exported from the first one on.
func (t *Tracing) Start(context.Context, func(error)) error { return nil }

// Stop exports the remaining spans, for 5 s at most. An unreachable collector is logged and not an
// error of the program.
func (t *Tracing) Stop(ctx context.Context) error {
	if t.provider == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("cannot export the last spans", "error", email.MaskText(err.Error()))
	}
	return nil
}
