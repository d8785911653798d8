package recipient

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	recipientstore "email-gateway/shared/store/recipient"
)

// Metrics counts the results of recipient imports. No label carries a tenant.
type Metrics struct {
	upserted prometheus.Counter
	retried  *prometheus.CounterVec
	dead     *prometheus.CounterVec
	duration prometheus.Histogram
}

// NewMetrics registers the metrics of recipient imports.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		upserted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "recipients_upserted_total", Help: "Recipient imports stored, or found to be stored already.",
		}),
		retried: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "recipients_retried_total", Help: "Failed recipient imports that will be retried, by reason.",
		}, []string{"reason"}),
		dead: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "recipients_dead_lettered_total", Help: "Recipient messages that became dead letters, by reason.",
		}, []string{"reason"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "recipients_processing_duration_seconds", Help: "Time from receiving a recipient message to the end of its attempt.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}, // a batch is limited to 30 s
		}),
	}
	for _, reason := range []string{retryUnavailable, retryUnknown, retryTimeout, retryLocked, CodeRefused, retryOther} {
		m.retried.WithLabelValues(reason)
	}
	for _, reason := range []string{email.CodeInvalidPayload, email.CodeOutboxNotFound, CodeRefused} {
		m.dead.WithLabelValues(reason)
	}
	registry.MustRegister(m.upserted, m.retried, m.dead, m.duration)
	return m
}

// Reasons for a retry, besides CodeRefused.
const (
	retryUnavailable = "DATABASE_UNAVAILABLE"
	retryUnknown     = "OUTCOME_UNKNOWN"
	retryTimeout     = "TIMEOUT"
	retryLocked      = "LOCKED"
	retryOther       = "OTHER"
)

// reasonOf is the metric label of an error.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return retryTimeout
	case errors.Is(err, recipientstore.ErrLocked):
		return retryLocked
	case errors.Is(err, store.ErrUnknownOutcome):
		return retryUnknown
	case errors.Is(err, store.ErrUnavailable):
		return retryUnavailable
	case errors.Is(err, recipientstore.ErrRefused):
		return CodeRefused
	}
	return retryOther
}

// took observes the duration for each message of a batch, which end together.
func (m *Metrics) took(d time.Duration, intakes int) {
	for range intakes {
		m.duration.Observe(d.Seconds())
	}
}
