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
	// flushTime bounds the last delivery of spans: a program that ends must not wait for
	// a collector that is away.
	flushTime = 5 * time.Second
	// complainEvery bounds what is logged of a collector that does not take spans.
	complainEvery = time.Minute
)

// Tracing sends a program's spans to a collector. It is a service.Service that stands
// first in a program's list, so that it ends last and delivers the others' spans.
// Spans go out in the background; those that a collector does not take are dropped, and
// nothing else is affected.
type Tracing struct {
	log      *slog.Logger
	provider *trace.TracerProvider // nil = off
}

// NewTracing makes a Tracing, which connects to nothing yet. name and environment are
// NewLogger's service and environment.
func NewTracing(ctx context.Context, log *slog.Logger, name, environment string, s TraceSettings) (*Tracing, error) {
	t := &Tracing{log: log}
	if !s.On() {
		return t, nil
	}
	t.speak()
	// The exporter reads the rest of its variables by itself: headers, timeout, certificates.
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

// speak gives the library's complaints the shape of our log. It has one place for them
// in each process.
func (t *Tracing) speak() {
	otel.SetLogger(logr.FromSlogHandler(t.log.Handler()))
	var next atomic.Int64
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		now := time.Now()
		if due := next.Load(); now.UnixNano() < due || !next.CompareAndSwap(due, now.Add(complainEvery).UnixNano()) {
			return
		}
		t.log.Warn("spans are lost: the trace collector does not take them", "error", email.MaskText(err.Error()))
	}))
}

// Tracer makes spans that are sent.
func (t *Tracing) Tracer() Tracer {
	if t.provider == nil {
		return Tracer{}
	}
	return Tracer{t.provider.Tracer("email-gateway")}
}

// Start does nothing: spans are sent from the first one on.
func (t *Tracing) Start(context.Context, func(error)) error { return nil }

// Stop sends what is left, for 5 s at most. A collector that is away is no fault of the
// program's, so it is logged and no error.
func (t *Tracing) Stop(ctx context.Context) error {
	if t.provider == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("last spans not sent", "error", email.MaskText(err.Error()))
	}
	return nil
}
