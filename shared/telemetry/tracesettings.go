package telemetry

import (
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/sdk/trace"

	"email-gateway/shared/environment"
)

// TraceSettings are the OpenTelemetry variables that the programs read themselves. The exporter
// reads others: OTEL_EXPORTER_OTLP_TIMEOUT, _CERTIFICATE, _COMPRESSION, OTEL_BSP_*,
// OTEL_RESOURCE_ATTRIBUTES.
type TraceSettings struct {
	// OTLPEndpoint is the collector that receives spans over HTTP, at its path /v1/traces. Without
	// it and TracesEndpoint, tracing is off.
	OTLPEndpoint string `env:"OTEL_EXPORTER_OTLP_ENDPOINT"`
	// TracesEndpoint is the complete URL that receives spans, instead of OTLPEndpoint.
	TracesEndpoint string `env:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"`
	// OTLPHeaders are headers sent with every export, as name=value,name=value: usually keys.
	OTLPHeaders string `env:"OTEL_EXPORTER_OTLP_HEADERS"`
	// TracesHeaders are headers sent with spans only, instead of OTLPHeaders.
	TracesHeaders string `env:"OTEL_EXPORTER_OTLP_TRACES_HEADERS"`
	// Sampler selects the traced requests: always_on, always_off or traceidratio, each also with
	// the prefix parentbased_, which follows the header traceparent of a caller with a valid key.
	Sampler string `env:"OTEL_TRACES_SAMPLER" envDefault:"parentbased_always_on"`
	// SamplerArg is the ratio of requests that traceidratio traces, 0 to 1.
	SamplerArg float64 `env:"OTEL_TRACES_SAMPLER_ARG" envDefault:"1"`
	// Disabled turns tracing off regardless of the other settings.
	Disabled bool `env:"OTEL_SDK_DISABLED" envDefault:"false"`
}

// CheckTraces adds the faults of the settings to f.
func (s *TraceSettings) CheckTraces(f *environment.Faults) {
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": s.OTLPEndpoint, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": s.TracesEndpoint,
	} {
		if value != "" {
			f.HTTPURL(name, value)
		}
	}
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_HEADERS": s.OTLPHeaders, "OTEL_EXPORTER_OTLP_TRACES_HEADERS": s.TracesHeaders,
	} {
		// The library's error would quote an unreadable value, which may be a key.
		f.Must(areHeaders(value), name, "must be name=value, with commas between them and special characters escaped as in URLs")
	}
	f.Must(s.sampler() != nil, "OTEL_TRACES_SAMPLER",
		"must be always_on, always_off, traceidratio, or one of these behind parentbased_")
	f.Must(s.SamplerArg >= 0 && s.SamplerArg <= 1, "OTEL_TRACES_SAMPLER_ARG", "must be 0 to 1")
}

func areHeaders(text string) bool {
	if text == "" {
		return true
	}
	for header := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(header, "=")
		name = strings.TrimSpace(name)
		if _, err := url.PathUnescape(value); err != nil || !found || name == "" || strings.Trim(name, tokenCharacters) != "" {
			return false
		}
	}
	return true
}

// tokenCharacters are the characters allowed in a header name.
const tokenCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"

// On reports whether tracing is on.
func (s *TraceSettings) On() bool {
	return !s.Disabled && (s.OTLPEndpoint != "" || s.TracesEndpoint != "")
}

// url receives the spans.
func (s *TraceSettings) url() string {
	if s.TracesEndpoint != "" {
		return s.TracesEndpoint
	}
	return strings.TrimRight(s.OTLPEndpoint, "/") + "/v1/traces"
}

// sampler is nil for an unknown name. A span's parent is a caller's span, or the one stored in the
// row or message: with parentbased_ a trace is sampled completely or not at all.
func (s *TraceSettings) sampler() trace.Sampler {
	name, based := strings.CutPrefix(s.Sampler, "parentbased_")
	var root trace.Sampler
	switch name {
	case "always_on":
		root = trace.AlwaysSample()
	case "always_off":
		root = trace.NeverSample()
	case "traceidratio":
		root = trace.TraceIDRatioBased(s.SamplerArg)
	default:
		return nil
	}
	if based {
		return trace.ParentBased(root)
	}
	return root
}
