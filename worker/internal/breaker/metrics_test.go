package breaker_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"email-gateway/worker/internal/breaker"
)

// The counter has a series at 0 for each code from the start; otherwise rate() misses the first
// event.
func TestMetrics_CountersStartAtZero(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	breaker.New(breaker.Params{Log: slog.New(slog.DiscardHandler), Registry: registry, Codes: []string{"SES_ACCESS_DENIED", paused}})
	const want = `# HELP provider_circuit_breaker_opens_total How often this process opened the circuit breaker, by reason code.
# TYPE provider_circuit_breaker_opens_total counter
provider_circuit_breaker_opens_total{reason="SES_ACCESS_DENIED"} 0
provider_circuit_breaker_opens_total{reason="SES_ACCOUNT_SENDING_PAUSED"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "provider_circuit_breaker_opens_total"); err != nil {
		t.Error(err)
	}
}
