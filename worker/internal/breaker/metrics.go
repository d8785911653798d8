package breaker

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	breakerstore "email-gateway/shared/store/breaker"
)

// Reasons that are not provider codes: held while an operator holds all emails, none while all
// emails pass.
const (
	held = "HELD_BY_OPERATOR"
	none = "none"
)

// metrics has each metric under its name and under that of the previous release, which the next release drops.
type metrics struct {
	state []*prometheus.GaugeVec
	opens []*prometheus.CounterVec
	shown map[string]bool // reasons with a gauge; only used by the watching loop
}

func newMetrics(registry prometheus.Registerer, codes []string, suspended func() error) *metrics {
	m := &metrics{}
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "worker_suspended", Help: "1 while this process is suspended: it only tries single emails, at intervals of up to a minute, because the provider accepts emails of other workers but none of its own.",
	}, func() float64 {
		if suspended() != nil {
			return 1
		}
		return 0
	}))
	for _, name := range []string{"provider_circuit_breaker_open", "provider_gate_shut"} {
		m.state = append(m.state, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: name, Help: "1 while only probes are sent to the provider, by reason code; 0 with the reason none while all emails are sent; NaN while the database does not answer.",
		}, []string{"reason"}))
		registry.MustRegister(m.state[len(m.state)-1])
	}
	for _, name := range []string{"provider_circuit_breaker_opens_total", "provider_gate_shuts_total"} {
		m.opens = append(m.opens, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: name, Help: "How often this process opened the circuit breaker, by reason code.",
		}, []string{"reason"}))
		registry.MustRegister(m.opens[len(m.opens)-1])
	}
	for _, code := range codes {
		m.countOpen(code, 0)
	}
	return m
}

// countOpen adds n openings for the reason; with 0 the series exists from the start.
func (m *metrics) countOpen(reason string, n float64) {
	for _, opens := range m.opens {
		opens.WithLabelValues(reason).Add(n)
	}
}

// show sets the gauges of the current reasons before it deletes those of the former ones: a scrape
// in between must not see a closed breaker.
func (m *metrics) show(b breakerstore.Breaker) {
	now := make(map[string]bool, 2)
	if b.Reason != nil {
		now[*b.Reason] = true
	}
	if b.HeldAt != nil {
		now[held] = true
	}
	if len(now) == 0 {
		now[none] = false
	}
	for reason, open := range now {
		value := 0.0
		if open {
			value = 1
		}
		for _, state := range m.state {
			state.WithLabelValues(reason).Set(value)
		}
	}
	for reason := range m.shown {
		if _, still := now[reason]; !still {
			for _, state := range m.state {
				state.DeleteLabelValues(reason)
			}
		}
	}
	m.shown = now
}

// unknown sets the gauges to NaN. The last state of one process that has lost the database would hide that of the others: an
// alert takes the maximum.
func (m *metrics) unknown() {
	for reason := range m.shown {
		for _, state := range m.state {
			state.WithLabelValues(reason).Set(math.NaN())
		}
	}
}
