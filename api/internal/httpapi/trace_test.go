package httpapi_test

import (
	"log/slog"
	"net/http"
	"testing"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/store/tenant"
	"email-gateway/shared/telemetry"
	"email-gateway/shared/telemetry/telemetrytest"
)

// The header traceparent is used only if the key is valid, from one of its networks, and of a company that is not
// suspended.
func TestTrace_AnonymousCallers(t *testing.T) {
	t.Parallel()
	const trace = "0af7651916cd43dd8448eb211c80319c"
	stranger, err := apikey.New("test")
	if err != nil {
		t.Fatal(err)
	}
	for sampler, flag := range map[string]string{"parentbased_always_off": "01", "parentbased_always_on": "00"} {
		collector := telemetrytest.Start(t)
		traces, err := telemetry.NewTracing(t.Context(), slog.New(slog.DiscardHandler), "api", "test", telemetry.TraceSettings{
			OTLPEndpoint: collector.URL, Sampler: sampler, SamplerArg: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		g := start(t, func(p *httpapi.Params) { p.Tracer = traces.Tracer() })
		header := map[string]string{"traceparent": "00-" + trace + "-b7ad6b7169203331-" + flag}
		g.do(t, call{Path: "/v1/email/x", Key: g.Key.String(), Header: header})
		g.do(t, call{Path: "/v1/emails", NoKey: true, Header: header})
		g.do(t, call{Path: "/v1/emails", Key: stranger.String(), Header: header})
		g.do(t, call{Path: "/u/token", NoKey: true, Header: header})
		bound := g.newKey(t, g.Company, func(k *tenant.APIKey) { k.Networks = []string{"203.0.113.0/24"} })
		g.do(t, call{Path: "/v1/suppressions", Key: bound.String(), Header: header})
		idle := g.Database.Company(t)
		suspended := g.newKey(t, idle, nil)
		g.Run(t, `UPDATE companies SET suspended_at = now() WHERE id = $1`, idle)
		g.do(t, call{Path: "/mailings", Key: suspended.String(), Header: header})
		if err := traces.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		kept := map[string]string{}
		for _, span := range collector.Spans() {
			kept[span.Name] = span.Trace
		}
		_, caller := kept["GET /v1/email/:id"]
		_, anonymous := kept["GET /v1/emails"]
		_, reader := kept["GET /u/:token"]
		_, elsewhere := kept["GET /v1/suppressions"]
		_, stopped := kept["GET /mailings"]
		if on := sampler == "parentbased_always_on"; caller == on || anonymous != on || reader != on || elsewhere != on || stopped != on || anonymous && kept["GET /v1/emails"] == trace {
			t.Errorf("sampler %s with the flag %s kept the spans %v", sampler, flag, kept)
		}
	}
}

// A wrong key that is checked only for tracing counts against the client's address.
func TestTrace_CountsWrongKeys(t *testing.T) {
	t.Parallel()
	stranger, err := apikey.New("test")
	if err != nil {
		t.Fatal(err)
	}
	collector := telemetrytest.Start(t)
	traces, err := telemetry.NewTracing(t.Context(), slog.New(slog.DiscardHandler), "api", "test", telemetry.TraceSettings{
		OTLPEndpoint: collector.URL, Sampler: "parentbased_always_off",
	})
	if err != nil {
		t.Fatal(err)
	}
	g := start(t, func(p *httpapi.Params) { p.Tracer = traces.Tracer() })
	header := map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	for range 40 { // twice as many as an address has: one more is forgiven every 3 s
		g.do(t, call{Path: "/u/token", Key: stranger.String(), Header: header})
	}
	refused := false
	for range 5 { // far fewer than an address has; on a busy machine some are forgiven
		refused = refused || g.do(t, call{Path: "/v1/emails", Key: stranger.String()}).Status == http.StatusTooManyRequests
	}
	if !refused {
		t.Error("after 40 wrong keys another one gets no 429")
	}
	if err := traces.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}
