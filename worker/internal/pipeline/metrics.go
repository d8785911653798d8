package pipeline

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/steps"
	"email-gateway/worker/internal/provider"
)

// Metrics counts what the pipeline does. No label carries a tenant or an address.
type Metrics struct {
	steps      *steps.Counter
	validation *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	processing prometheus.Histogram
	calls      *prometheus.HistogramVec
	waits      *prometheus.CounterVec
}

// NewMetrics registers the pipeline's metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	// From a millisecond (a validation that fails) to the call's 30 s.
	buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	m := &Metrics{
		steps: steps.New(registry, provider.RetriedCategories()...),
		validation: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pipeline_validation_failures_total", Help: "Emails and tasks that failed a validation.",
		}, []string{"validation"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pipeline_processing_duration_seconds", Help: "Time from receiving a task to each state its email reached.", Buckets: buckets,
		}, []string{"state"}),
		processing: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "mailing_processing_duration_seconds", Help: "Time from receiving a task to the end of its attempt.", Buckets: buckets,
		}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "provider_call_duration_seconds", Help: "Duration of a provider call, by outcome.", Buckets: buckets,
		}, []string{"outcome"}),
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pipeline_attachment_waits_total", Help: "Emails that were postponed, without spending a try, because there was no memory for their attachments or large body, the file storage could not be reached, a file is missing or damaged, or their key is missing.",
		}, []string{"reason"}),
	}
	for _, reason := range []string{"busy", "unavailable", "missing"} {
		m.waits.WithLabelValues(reason)
	}
	for _, state := range []email.EventType{email.EventReceived, email.EventValidated, email.EventValidationFailed, email.EventSentAttempt} {
		m.duration.WithLabelValues(string(state))
	}
	for _, v := range []email.Validation{email.ValidationIntegrity, email.ValidationOutbox, email.ValidationRecipient, email.ValidationTemplate} {
		m.validation.WithLabelValues(string(v))
	}
	registry.MustRegister(m.validation, m.duration, m.processing, m.calls, m.waits)
	return m
}

// Steps returns the counter of transitions.
func (m *Metrics) Steps() *steps.Counter { return m.steps }

func (m *Metrics) transitions(events []email.Event) { m.steps.Took(events) }

func (m *Metrics) validationFailed(v email.Validation) { m.validation.WithLabelValues(string(v)).Inc() }

func (m *Metrics) took(status email.Status, d time.Duration) {
	m.duration.WithLabelValues(string(status)).Observe(d.Seconds())
	m.processing.Observe(d.Seconds())
}

// reached observes the states an attempt reached before its outcome.
func (m *Metrics) reached(states []reached) {
	for _, r := range states {
		m.duration.WithLabelValues(string(r.state)).Observe(r.after.Seconds())
	}
}

func (m *Metrics) postponed(reason string) { m.waits.WithLabelValues(reason).Inc() }

func (m *Metrics) final(status email.Status) { m.steps.Ended(status) }

// called observes a call's duration by outcome; SENT if there was no failure.
func (m *Metrics) called(d time.Duration, err error) {
	outcome := string(email.Sent)
	var f *provider.Failure
	if errors.As(err, &f) {
		outcome = string(f.Outcome)
	} else if err != nil {
		outcome = string(provider.Unknown) // as asFailure reads it
	}
	m.calls.WithLabelValues(outcome).Observe(d.Seconds())
}
