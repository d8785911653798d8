package reputation

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/store/reputation"
)

// metrics count warnings and pauses. No label carries a tenant.
type metrics struct {
	warnings  *prometheus.CounterVec
	pauses    *prometheus.CounterVec
	companies prometheus.Gauge
	failing   prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		warnings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reputation_warnings_total", Help: "Warnings that a company's emails bounce or draw complaints often, by rule.",
		}, []string{"rule"}),
		pauses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reputation_pauses_total", Help: "Pauses of a company's mailings by the reputation guard, by rule.",
		}, []string{"rule"}),
		companies: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "reputation_paused_companies", Help: "Companies whose mailings the reputation guard has paused.",
		}),
		failing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "reputation_failing_checks", Help: "Companies whose last check by the reputation guard failed.",
		}),
	}
	for _, rule := range reputation.Rules() {
		m.warnings.WithLabelValues(string(rule))
		m.pauses.WithLabelValues(string(rule))
	}
	m.unknown() // until the first round, because 0 would look healthy
	registry.MustRegister(m.warnings, m.pauses, m.companies, m.failing)
	return m
}

// unknown sets the gauges to NaN: the last values of a process that has lost the database would hide those of the others.
func (m *metrics) unknown() {
	m.companies.Set(math.NaN())
	m.failing.Set(math.NaN())
}
