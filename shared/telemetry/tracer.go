package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"email-gateway/shared/email"
)

// Tracer creates spans. The zero Tracer creates none, at no cost.
type Tracer struct{ tracer trace.Tracer }

// On reports whether tracing is on.
func (t Tracer) On() bool { return t.tracer != nil }

// SpanKind is the role of a span.
type SpanKind int

const (
	// Internal is a step within a program.
	Internal SpanKind = iota
	// Server handles a request, Client waits for a response.
	Server
	Client
	// Producer publishes a message, Consumer processes one.
	Producer
	Consumer
)

func (k SpanKind) otel() trace.SpanKind {
	switch k {
	case Server:
		return trace.SpanKindServer
	case Client:
		return trace.SpanKindClient
	case Producer:
		return trace.SpanKindProducer
	case Consumer:
		return trace.SpanKindConsumer
	case Internal:
	}
	return trace.SpanKindInternal
}

// Start starts a span, as a child of ctx's span if there is one. The name is one of a few; variable
// data are attributes. Every span must be ended.
func (t Tracer) Start(ctx context.Context, name string, kind SpanKind) (context.Context, Span) {
	if t.tracer == nil {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind.otel()))
	return ctx, Span{span}
}

// Span is a step of a trace, from Start to End. The zero Span discards everything.
//
// Traces leave the installation: an attribute is one of our ids, a name that we chose, or a number,
// never data of tenants or persons; addresses are masked as a precaution.
type Span struct{ span trace.Span }

// On reports whether tracing is on, whether or not this trace is sampled.
func (s Span) On() bool { return s.span != nil }

// Text adds an attribute.
func (s Span) Text(name, value string) {
	if s.span != nil && s.span.IsRecording() {
		s.span.SetAttributes(attribute.String(name, email.MaskText(value)))
	}
}

// Number adds an attribute.
func (s Span) Number(name string, value int64) {
	if s.span != nil && s.span.IsRecording() {
		s.span.SetAttributes(attribute.Int64(name, value))
	}
}

// Fail marks the span as failed, with one of our codes or a name for the failure. Never pass an
// error's text, which may quote anything.
func (s Span) Fail(code string) {
	if s.span != nil && s.span.IsRecording() {
		s.span.SetStatus(codes.Error, code)
		s.span.SetAttributes(attribute.String("error.type", code))
	}
}

// End ends the span.
func (s Span) End() {
	if s.span != nil {
		s.span.End()
	}
}

// Traceparent returns the W3C traceparent of ctx's span, to store in a row, a task or a message; ""
// if there is none. It is also returned for a trace that is not sampled, so that no other one is
// started later.
func Traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparentField]
}

// WithTraceparent returns a context whose spans belong to the trace of traceparent. An invalid
// traceparent is ignored. W3C's other fields (tracestate, baggage) are not used, because a caller
// can put anything into them.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparentField: traceparent})
}

// TraceIDOf is the id of ctx's trace, for log lines; "" if there is none.
func TraceIDOf(ctx context.Context) string {
	if c := trace.SpanContextFromContext(ctx); c.IsValid() {
		return c.TraceID().String()
	}
	return ""
}

const traceparentField = "traceparent"
