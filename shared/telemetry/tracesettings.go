package telemetry

import (
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/sdk/trace"

	"email-gateway/shared/environment"
)

// TraceSettings are OpenTelemetry's own variables as far as they are decided here. Its
// exporter reads others by itself: OTEL_EXPORTER_OTLP_TIMEOUT, _CERTIFICATE, _COMPRESSION,
// OTEL_BSP_*, OTEL_RESOURCE_ATTRIBUTES.
type TraceSettings struct {
	// OTLPEndpoint is the collector that spans are sent to over HTTP, at its path
	// /v1/traces. Without it and TracesEndpoint, tracing is off.
	OTLPEndpoint string `env:"OTEL_EXPORTER_OTLP_ENDPOINT"`
	// TracesEndpoint is the whole URL that spans are sent to, in place of OTLPEndpoint.
	TracesEndpoint string `env:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"`
	// OTLPHeaders are sent along with every delivery, as name=value,name=value: keys, mostly.
	OTLPHeaders string `env:"OTEL_EXPORTER_OTLP_HEADERS"`
	// TracesHeaders are the same for spans alone, in place of OTLPHeaders.
	TracesHeaders string `env:"OTEL_EXPORTER_OTLP_TRACES_HEADERS"`
	// Sampler decides which requests are traced: always_on, always_off or traceidratio,
	// each also behind parentbased_, which follows the header traceparent of a caller with a valid key.
	Sampler string `env:"OTEL_TRACES_SAMPLER" envDefault:"parentbased_always_on"`
	// SamplerArg is the share of requests that traceidratio traces, 0 to 1.
	SamplerArg float64 `env:"OTEL_TRACES_SAMPLER_ARG" envDefault:"1"`
	// Disabled turns tracing off whatever the others say.
	Disabled bool `env:"OTEL_SDK_DISABLED" envDefault:"false"`
}

// CheckTraces adds to f what is wrong.
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
		// The library would quote what it cannot read, and it may be a key.
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

// tokenCharacters are those of a header's name.
const tokenCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"

// On says whether anything is traced.
func (s *TraceSettings) On() bool {
	return !s.Disabled && (s.OTLPEndpoint != "" || s.TracesEndpoint != "")
}

// url is where spans are sent to.
func (s *TraceSettings) url() string {
	if s.TracesEndpoint != "" {
		return s.TracesEndpoint
	}
	return strings.TrimRight(s.OTLPEndpoint, "/") + "/v1/traces"
}

// sampler is nil for a name that is none. The parent of a span is a caller's, or the
// span that the row or the message carries: with parentbased_ a trace is whole or not
// there at all.
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
