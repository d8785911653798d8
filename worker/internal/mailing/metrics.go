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
			Name: "mailing_jobs_total",
			Help: "Mailing jobs by outcome: finished, continued (in another job), quota (waits for one), paused (by the reputation guard), obsolete, held (by another job), silent (the job that holds the mailing sends no heartbeat), lost (the job lost the mailing, or a row is locked), failed (will be retried), dead (failed finally), buried (invalid, dead-lettered).",
		}, []string{"outcome"}),
		entries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mailing_expanded_entries_total", Help: "Mailing entries that became emails (queued) or are invalid (syntax, mx).",
		}, []string{"verdict"}),
	}
	for _, outcome := range []string{"finished", "continued", "quota", "paused", "obsolete", "held", "silent", "lost", "failed", "dead", "buried"} {
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
