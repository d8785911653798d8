package breaker_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	breakerstore "email-gateway/shared/store/breaker"
	"email-gateway/shared/waittest"
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

// A process that has lost the database does not show its last state, which others may have changed.
func TestMetrics_DatabaseAway(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	s := &heldStore{}
	watch := breaker.New(breaker.Params{Log: slog.New(slog.DiscardHandler), Registry: registry, Store: s}).Watch()
	if err := watch.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = watch.Stop(context.Background()) })
	shows := func(want string) {
		t.Helper()
		waittest.Until(t, want, func() bool {
			return testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP provider_circuit_breaker_open 1 while only probes are sent to the provider, by reason code; 0 with the reason none while all emails are sent; NaN while the database does not answer.
# TYPE provider_circuit_breaker_open gauge
provider_circuit_breaker_open`+want+"\n"), "provider_circuit_breaker_open") == nil
		})
	}
	shows(`{reason="HELD_BY_OPERATOR"} 1`)
	s.away.Store(true)
	shows(`{reason="HELD_BY_OPERATOR"} NaN`)
	s.resumed.Store(true)
	s.away.Store(false)
	shows(`{reason="none"} 0`)
}

// heldStore has the state that an operator has paused sending, until that is resumed.
type heldStore struct {
	breaker.Store
	away, resumed atomic.Bool
}

func (s *heldStore) Breaker(context.Context) (breakerstore.Breaker, error) {
	if s.away.Load() {
		return breakerstore.Breaker{}, errors.New("away")
	}
	if s.resumed.Load() {
		return breakerstore.Breaker{}, nil
	}
	now := time.Now()
	return breakerstore.Breaker{HeldAt: &now}, nil
}
