package pace

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics show what the account may send. Every worker shows the same account: the least
// of their values counts.
type metrics struct {
	rate, limit, left prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer, current func() float64) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &metrics{
		rate:  gauge("provider_send_rate_limit", "Recipients per second that all workers together send to: the account's, or SES_MAX_SEND_RATE where that is not known."),
		limit: gauge("provider_quota_limit", "Recipients that the account may send to in any 24 hours; +Inf without a limit, NaN while not known."),
		left:  gauge("provider_quota_left", "How many of provider_quota_limit are left; +Inf without a limit, NaN while not known."),
	}
	m.forget()
	registry.MustRegister(m.rate, m.limit, m.left, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "provider_send_rate", Help: "Recipients per second that all workers together send to at the moment: less than provider_send_rate_limit for a minute after the provider throttled.",
	}, current))
	return m
}

// forget is for an account that does not answer: no number is better than an old one.
func (m *metrics) forget() {
	m.limit.Set(math.NaN())
	m.left.Set(math.NaN())
}

func (m *metrics) quota(l Limits) {
	if l.PerDay < 0 {
		m.limit.Set(math.Inf(1))
		m.left.Set(math.Inf(1))
		return
	}
	m.limit.Set(l.PerDay)
	m.left.Set(max(l.PerDay-l.SentToday, 0))
}
