// Package telemetrytest receives the spans that programs send, for tests.
package telemetrytest

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
)

// Collector is an OTLP receiver over HTTP.
type Collector struct {
	// URL is what OTEL_EXPORTER_OTLP_ENDPOINT names it by.
	URL string

	mu    sync.Mutex
	spans []Span
	raw   strings.Builder
}

// Span is one that was received. Ids are in hex; Parent is "" for the first of a trace.
type Span struct {
	Service, Version  string // of the program
	Name              string
	Trace, ID, Parent string
	Attributes        map[string]string // numbers in decimal
	Failure           string            // what it failed with
	TraceState        string
}

// Start receives until the test ends.
func Start(tb testing.TB) *Collector {
	tb.Helper()
	c := &Collector{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var delivery collector.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &delivery) != nil {
			tb.Errorf("a delivery of spans to %s cannot be read: %v", r.URL.Path, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.take(&delivery)
	}))
	tb.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

func (c *Collector) take(delivery *collector.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range delivery.ResourceSpans {
		program := attributes(of.GetResource().GetAttributes())
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, Span{
					Service: program["service.name"], Version: program["service.version"], Name: s.Name, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId),
					Parent: hex.EncodeToString(s.ParentSpanId), Attributes: attributes(s.Attributes), Failure: s.GetStatus().GetMessage(),
					TraceState: s.TraceState,
				})
				// Ids are bytes by chance, and now and then they spell something.
				s.TraceId, s.SpanId, s.ParentSpanId = nil, nil, nil
			}
		}
	}
	c.raw.WriteString(delivery.String())
}

func attributes(list []*common.KeyValue) map[string]string {
	all := make(map[string]string, len(list))
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			all[a.Key] = v.StringValue
		default:
			_, all[a.Key], _ = strings.Cut(a.GetValue().String(), ":")
			all[a.Key] = strings.Trim(all[a.Key], `" `)
		}
	}
	return all
}

// Spans are all that have been received.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Text is all that has been received but the ids of traces and spans, to search for what
// must not be in it.
func (c *Collector) Text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw.String()
}
