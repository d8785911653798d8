package telemetry_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/telemetry"
)

func TestMetricsHandler_OwnAndProcessMetrics(t *testing.T) {
	t.Parallel()
	registry := telemetry.NewRegistry()
	sent := prometheus.NewCounter(prometheus.CounterOpts{Name: "test_sent_total", Help: "For this test."})
	registry.MustRegister(sent)
	sent.Add(3)

	answer := httptest.NewRecorder()
	telemetry.MetricsHandler(registry).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.Code != http.StatusOK {
		t.Fatalf("status %d, %v", answer.Code, err)
	}
	for _, want := range []string{"\ntest_sent_total 3\n", "\ngo_goroutines ", "\nprocess_resident_memory_bytes "} {
		if !strings.Contains(string(body), want) {
			t.Errorf("%q is missing in:\n%s", want, body)
		}
	}
}

// Two programs, or two tests, in one process do not share metrics.
func TestNewRegistry_Separate(t *testing.T) {
	t.Parallel()
	for range 2 {
		telemetry.NewRegistry().MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "test_once_total"}))
	}
}
