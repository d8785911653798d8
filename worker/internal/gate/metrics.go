package gate

import (
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/store"
)

// Reasons that are no provider's code: held is shown while an operator holds everything
// back, none while all passes.
const (
	held = "HELD_BY_OPERATOR"
	none = "none"
)

type metrics struct {
	state *prometheus.GaugeVec
	shuts *prometheus.CounterVec
	shown map[string]bool // by the watching loop: the reasons that have a gauge
}

func newMetrics(registry prometheus.Registerer, codes []string) *metrics {
	m := &metrics{
		state: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "provider_gate_shut", Help: "1 while nothing passes to the provider but probes, by the code that says why; 0 with the reason none while all passes.",
		}, []string{"reason"}),
		shuts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "provider_gate_shuts_total", Help: "How often this process shut the gate, by the code that says why.",
		}, []string{"reason"}),
	}
	for _, code := range codes {
		m.shuts.WithLabelValues(code)
	}
	registry.MustRegister(m.state, m.shuts)
	return m
}

// show sets the gauge of each reason that holds, before it takes away those that held
// before: whoever scrapes in between must not see an open gate.
func (m *metrics) show(g store.Gate) {
	now := make(map[string]bool, 2)
	if g.Reason != nil {
		now[*g.Reason] = true
	}
	if g.HeldAt != nil {
		now[held] = true
	}
	if len(now) == 0 {
		now[none] = false
	}
	for reason, shut := range now {
		value := 0.0
		if shut {
			value = 1
		}
		m.state.WithLabelValues(reason).Set(value)
	}
	for reason := range m.shown {
		if _, still := now[reason]; !still {
			m.state.DeleteLabelValues(reason)
		}
	}
	m.shown = now
}
