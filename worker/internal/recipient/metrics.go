package recipient

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// Metrics counts what becomes of intakes. No label carries a tenant.
type Metrics struct {
	upserted prometheus.Counter
	retried  *prometheus.CounterVec
	buried   *prometheus.CounterVec
	duration prometheus.Histogram
}

// NewMetrics registers the metrics of the intake of recipients.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		upserted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "recipients_upserted_total", Help: "Intakes written down, or found to be written already.",
		}),
		retried: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "recipients_retried_total", Help: "Intakes that failed and were put back for another try, by reason.",
		}, []string{"reason"}),
		buried: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "recipients_buried_total", Help: "Messages that ended as dead letters, by reason.",
		}, []string{"reason"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "recipients_processing_duration_seconds", Help: "From receiving an intake to the end of its try.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}, // 30 s is all that a batch has
		}),
	}
	for _, reason := range []string{retryUnavailable, retryUnknown, retryTimeout, retryLocked, CodeRefused, retryOther} {
		m.retried.WithLabelValues(reason)
	}
	for _, reason := range []string{email.CodeInvalidPayload, email.CodeOutboxNotFound, CodeRefused} {
		m.buried.WithLabelValues(reason)
	}
	registry.MustRegister(m.upserted, m.retried, m.buried, m.duration)
	return m
}

// Reasons of another try, besides CodeRefused.
const (
	retryUnavailable = "DATABASE_UNAVAILABLE"
	retryUnknown     = "OUTCOME_UNKNOWN"
	retryTimeout     = "TIMEOUT"
	retryLocked      = "LOCKED"
	retryOther       = "OTHER"
)

// reasonOf is the label of what kept an intake from being written.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return retryTimeout
	case errors.Is(err, store.ErrLocked):
		return retryLocked
	case errors.Is(err, store.ErrUnknownOutcome):
		return retryUnknown
	case errors.Is(err, store.ErrUnavailable):
		return retryUnavailable
	case errors.Is(err, store.ErrRefused):
		return CodeRefused
	}
	return retryOther
}

// took times each intake of a batch, which end together.
func (m *Metrics) took(d time.Duration, intakes int) {
	for range intakes {
		m.duration.Observe(d.Seconds())
	}
}
