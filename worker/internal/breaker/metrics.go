package breaker

import (
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/store"
)

// Reasons that are not provider codes: held while an operator holds all emails, none while all
// emails pass.
const (
	held = "HELD_BY_OPERATOR"
	none = "none"
)

type metrics struct {
	state *prometheus.GaugeVec
	shuts *prometheus.CounterVec
	shown map[string]bool // reasons with a gauge; only used by the watching loop
}

func newMetrics(registry prometheus.Registerer, codes []string) *metrics {
	m := &metrics{
		state: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "provider_gate_shut", Help: "1 while only probes are sent to the provider, by reason code; 0 with the reason none while all emails are sent.",
		}, []string{"reason"}),
		shuts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "provider_gate_shuts_total", Help: "How often this process parked sending, by reason code.",
		}, []string{"reason"}),
	}
	for _, code := range codes {
		m.shuts.WithLabelValues(code)
	}
	registry.MustRegister(m.state, m.shuts)
	return m
}

// show sets the gauges of the current reasons before it deletes those of the former ones: a scrape
// in between must not see a closed breaker.
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
