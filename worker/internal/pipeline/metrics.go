package pipeline

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/worker/internal/provider"
)

// Metrics counts what the pipeline does. No label carries a tenant or an address.
type Metrics struct {
	state      *prometheus.CounterVec
	validation *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	retry      *prometheus.CounterVec
	finals     *prometheus.CounterVec
	emails     *prometheus.CounterVec
	processing prometheus.Histogram
}

// NewMetrics registers the pipeline's metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	// From a millisecond (a validation that fails) to the call's 30 s.
	buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	m := &Metrics{
		state: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pipeline_state_transitions_total", Help: "Events written, by type.",
		}, []string{"state"}),
		validation: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pipeline_validation_failures_total", Help: "Emails and tasks that did not pass a validation.",
		}, []string{"validation"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pipeline_processing_duration_seconds", Help: "From receiving a task to the status it led to.", Buckets: buckets,
		}, []string{"state"}),
		retry: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pipeline_retry_total", Help: "Attempts that led to another, by the error's category.",
		}, []string{"category"}),
		finals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pipeline_final_state_total", Help: "Emails ended by a worker, by final status.",
		}, []string{"state"}),
		emails: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mailing_emails_total", Help: "Emails sent and failed.",
		}, []string{"status"}),
		processing: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "mailing_processing_duration_seconds", Help: "From receiving a task to the end of its attempt.", Buckets: buckets,
		}),
	}
	registry.MustRegister(m.state, m.validation, m.duration, m.retry, m.finals, m.emails, m.processing)
	return m
}

func (m *Metrics) transitions(events []email.Event) {
	for _, e := range events {
		m.state.WithLabelValues(string(e.Type)).Inc()
	}
}

func (m *Metrics) validationFailed(v email.Validation) { m.validation.WithLabelValues(string(v)).Inc() }

func (m *Metrics) retried(c provider.Category) { m.retry.WithLabelValues(string(c)).Inc() }

func (m *Metrics) took(status email.Status, d time.Duration) {
	m.duration.WithLabelValues(string(status)).Observe(d.Seconds())
	m.processing.Observe(d.Seconds())
}

func (m *Metrics) final(status email.Status) {
	m.finals.WithLabelValues(string(status)).Inc()
	switch status {
	case email.Sent:
		m.emails.WithLabelValues("sent").Inc()
	case email.Failed:
		m.emails.WithLabelValues("failed").Inc()
	}
}
