package gate

import (
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/store"
)

// held is the reason shown while an operator holds everything back.
const held = "HELD_BY_OPERATOR"

type metrics struct {
	state *prometheus.GaugeVec
	shuts *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		state: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "provider_gate_shut", Help: "1 while nothing passes to the provider but probes, by the code that says why; no sample while all passes.",
		}, []string{"reason"}),
		shuts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "provider_gate_shuts_total", Help: "How often this process shut the gate, by the code that says why.",
		}, []string{"reason"}),
	}
	registry.MustRegister(m.state, m.shuts)
	return m
}

func (m *metrics) show(g store.Gate) {
	m.state.Reset()
	if g.Reason != nil {
		m.state.WithLabelValues(*g.Reason).Set(1)
	}
	if g.HeldAt != nil {
		m.state.WithLabelValues(held).Set(1)
	}
}
