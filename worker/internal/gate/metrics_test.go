package gate_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"email-gateway/worker/internal/gate"
)

// The counter has a series at 0 for each code before the gate is first shut: without one, rate() misses the first time.
func TestMetrics_CountersBeginAtZero(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	gate.New(gate.Params{Log: slog.New(slog.DiscardHandler), Registry: registry, Codes: []string{"SES_ACCESS_DENIED", paused}})
	const want = `# HELP provider_gate_shuts_total How often this process shut the gate, by the code that says why.
# TYPE provider_gate_shuts_total counter
provider_gate_shuts_total{reason="SES_ACCESS_DENIED"} 0
provider_gate_shuts_total{reason="SES_ACCOUNT_SENDING_PAUSED"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "provider_gate_shuts_total"); err != nil {
		t.Error(err)
	}
}
