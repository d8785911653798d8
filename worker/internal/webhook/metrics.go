package webhook

import (
	"github.com/prometheus/client_golang/prometheus"

	webhookstore "email-gateway/shared/store/webhook"
)

// Metrics are the metrics of webhooks. No label contains a tenant.
type Metrics struct {
	attempts  *prometheus.CounterVec
	duration  prometheus.Histogram
	exhausted prometheus.Counter
	disabled  *prometheus.CounterVec
	skipped   prometheus.Counter
	errors    prometheus.Counter
	endpoints *prometheus.GaugeVec
	open      prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "webhook_attempts_total", Help: "Attempts to deliver an event to a webhook endpoint, by result.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "webhook_attempt_duration_seconds", Help: "Time from the start of an attempt to its response or failure.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15},
		}),
		exhausted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "webhook_deliveries_failed_total", Help: "Deliveries whose last attempt failed.",
		}),
		disabled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "webhook_endpoints_disabled_total", Help: "Webhook endpoints that were disabled automatically, by reason.",
		}, []string{"reason"}),
		skipped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "webhook_events_expired_total", Help: "Times that a webhook endpoint missed events because they were deleted before their delivery.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "webhook_endpoint_errors_total", Help: "Times that a webhook endpoint could not be served because of a fault of the gateway.",
		}),
		endpoints: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "webhook_endpoints", Help: "Webhook endpoints by state. down: enabled, and the last 10 attempts or more have failed.",
		}, []string{"state"}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "webhook_open_deliveries", Help: "Deliveries that will be attempted again, or that wait for such a delivery.",
		}),
	}
	for _, result := range []string{resultDelivered, resultThrottled, resultRejected, resultUnreachable} {
		m.attempts.WithLabelValues(result)
	}
	for _, reason := range []webhookstore.Reason{webhookstore.Gone, webhookstore.Failing} {
		m.disabled.WithLabelValues(string(reason))
	}
	registry.MustRegister(m.attempts, m.duration, m.exhausted, m.disabled, m.skipped, m.errors, m.endpoints, m.open)
	return m
}

const (
	resultDelivered   = "delivered"
	resultThrottled   = "throttled"   // 429 or 503
	resultRejected    = "rejected"    // another response that is not 2xx
	resultUnreachable = "unreachable" // no response
)

func (m *Metrics) attempt(o Outcome) {
	result := resultUnreachable
	switch {
	case o.Delivered:
		result = resultDelivered
	case o.Throttled():
		result = resultThrottled
	case o.Status > 0:
		result = resultRejected
	}
	m.attempts.WithLabelValues(result).Inc()
	m.duration.Observe(o.Took.Seconds())
}

func (m *Metrics) count(c webhookstore.Counts) {
	m.endpoints.WithLabelValues("enabled").Set(float64(c.Enabled))
	m.endpoints.WithLabelValues("down").Set(float64(c.Down))
	m.endpoints.WithLabelValues("disabled").Set(float64(c.Disabled))
	m.open.Set(float64(c.Open))
}
