package mailing

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what the jobs of mailings do. No label carries a tenant.
type Metrics struct {
	jobs    *prometheus.CounterVec
	entries *prometheus.CounterVec
}

// NewMetrics registers the metrics of the mailings' jobs.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mailing_jobs_total",
			Help: "Jobs of mailings by how they ended: finished, continued by another, waiting for a quota, obsolete, held by another, silent, lost, failed, dead, buried.",
		}, []string{"outcome"}),
		entries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mailing_expanded_entries_total", Help: "Entries of mailings that became emails (queued) or were found to be invalid (syntax, mx).",
		}, []string{"verdict"}),
	}
	for _, outcome := range []string{"finished", "continued", "quota", "obsolete", "held", "silent", "lost", "failed", "dead", "buried"} {
		m.jobs.WithLabelValues(outcome)
	}
	for _, verdict := range []string{"queued", "syntax", "mx"} {
		m.entries.WithLabelValues(verdict)
	}
	registry.MustRegister(m.jobs, m.entries)
	return m
}

func (m *Metrics) job(outcome string) { m.jobs.WithLabelValues(outcome).Inc() }

func (m *Metrics) expanded(verdict string, n int) { m.entries.WithLabelValues(verdict).Add(float64(n)) }
