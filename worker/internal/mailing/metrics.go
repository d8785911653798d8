package mailing

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts the results of mailing jobs. No label carries a tenant.
type Metrics struct {
	jobs    *prometheus.CounterVec
	entries *prometheus.CounterVec
}

// NewMetrics registers the metrics of the mailings' jobs.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mailing_jobs_total", Help: "Mailing jobs by outcome; the README of the worker explains the outcomes.",
		}, []string{"outcome"}),
		entries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mailing_expanded_entries_total", Help: "Mailing entries that became emails (queued) or are invalid (syntax, mx).",
		}, []string{"result"}),
	}
	for _, outcome := range []string{"finished", "continued", "quota", "paused", "obsolete", "held", "silent", "lost", "failed", "dead", "invalid"} {
		m.jobs.WithLabelValues(outcome)
	}
	for _, result := range []string{"queued", "syntax", "mx"} {
		m.entries.WithLabelValues(result)
	}
	registry.MustRegister(m.jobs, m.entries)
	return m
}

func (m *Metrics) job(outcome string) { m.jobs.WithLabelValues(outcome).Inc() }

func (m *Metrics) expanded(result string, n int) { m.entries.WithLabelValues(result).Add(float64(n)) }
