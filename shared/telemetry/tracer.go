package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"email-gateway/shared/email"
)

// Tracer makes the spans of traces. The zero Tracer makes none, and costs nothing.
type Tracer struct{ tracer trace.Tracer }

// On says whether spans are made.
func (t Tracer) On() bool { return t.tracer != nil }

// SpanKind says which side of an exchange a span is.
type SpanKind int

const (
	// Internal is a step within a program.
	Internal SpanKind = iota
	// Server answers a request, Client waits for the answer to one.
	Server
	Client
	// Producer leaves a message for somebody, Consumer works on one.
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

// Start begins a span below the one that ctx carries, if it does. The name is one of
// few: what varies is an attribute. Every span is ended.
func (t Tracer) Start(ctx context.Context, name string, kind SpanKind) (context.Context, Span) {
	if t.tracer == nil {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind.otel()))
	return ctx, Span{span}
}

// Span is a step of a trace, from Start to End. The zero Span takes everything and
// keeps nothing.
//
// Traces leave the installation: an attribute is an id of ours, a name that we chose, or
// a number. Tenants and their people are none of these; what looks like an address is
// masked all the same.
type Span struct{ span trace.Span }

// On says whether tracing is on, whether or not this trace is kept.
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

// Fail marks the span as failed, with a code of ours or a name for what went wrong. It
// is not given an error's text, which may quote anything.
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

// Traceparent names the span that ctx carries in W3C's form, for a row, a task or a
// message to carry on; "" if there is none. A trace that is not sampled is named too, so
// that nobody begins another one further down.
func Traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparentField]
}

// WithTraceparent is a context whose spans belong to the trace that traceparent names.
// What is no traceparent begins none. W3C's other fields (tracestate, baggage) are not
// taken over: they are whatever a caller likes to put in.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparentField: traceparent})
}

// TraceIDOf is the id of the trace that ctx belongs to, for log lines; "" if there is none.
func TraceIDOf(ctx context.Context) string {
	if c := trace.SpanContextFromContext(ctx); c.IsValid() {
		return c.TraceID().String()
	}
	return ""
}

const traceparentField = "traceparent"
