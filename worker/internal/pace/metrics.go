package pace

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics has the account's limits. All workers report the same account, so use the minimum of a metric and not the
// sum.
type metrics struct {
	rate, limit, left, review prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer, current func() float64) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &metrics{
		rate:  gauge("provider_send_rate_limit", "Send rate limit of all workers together, in recipients per second: the account's, or SES_MAX_SEND_RATE if that was not read in the last hour."),
		limit: gauge("provider_quota_limit", "Recipients that the account may send to per 24 hours; +Inf without a limit, NaN if unknown."),
		left:  gauge("provider_quota_left", "Remaining part of provider_quota_limit; +Inf without a limit, NaN if unknown."),

		review: gauge("provider_account_under_review", "1 while the provider reviews the account, or has paused it after a review; NaN if unknown."),
	}
	m.forget()
	registry.MustRegister(m.rate, m.limit, m.left, m.review, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "provider_send_rate", Help: "Current send rate of all workers together, in recipients per second: below provider_send_rate_limit for a minute after the provider throttled.",
	}, current))
	return m
}

// forget sets the account's state to NaN while it cannot be read: an old value would look current.
func (m *metrics) forget() {
	m.review.Set(math.NaN())
	m.limit.Set(math.NaN())
	m.left.Set(math.NaN())
}

func (m *metrics) account(l Limits) {
	m.review.Set(0)
	if l.UnderReview {
		m.review.Set(1)
	}
	if l.PerDay < 0 {
		m.limit.Set(math.Inf(1))
		m.left.Set(math.Inf(1))
		return
	}
	m.limit.Set(l.PerDay)
	m.left.Set(max(l.PerDay-l.SentToday, 0))
}
