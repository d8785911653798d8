package recipient

import (
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
)

// Metrics counts what becomes of intakes. No label carries a tenant.
type Metrics struct {
	upserted prometheus.Counter
	retried  prometheus.Counter
	buried   *prometheus.CounterVec
}

// NewMetrics registers the metrics of the intake of recipients.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		upserted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "recipients_upserted_total", Help: "Intakes written down, or found to be written already.",
		}),
		retried: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "recipients_retried_total", Help: "Intakes that failed and were put back for another try.",
		}),
		buried: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "recipients_buried_total", Help: "Messages that ended as dead letters, by reason.",
		}, []string{"reason"}),
	}
	for _, reason := range []string{email.CodeInvalidPayload, email.CodeOutboxNotFound, CodeRefused} {
		m.buried.WithLabelValues(reason)
	}
	registry.MustRegister(m.upserted, m.retried, m.buried)
	return m
}
