package telemetry

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// Dependencies is the metric gateway_dependency_up of all programs: whether their dependencies
// respond. It is a collector, to be registered once.
type Dependencies struct{ *prometheus.GaugeVec }

// NewDependencies sets the named dependencies to unknown (NaN). The names are those of /health:
// database, redis, rabbitmq, ses, storage; and replication, which SetDatabase sets.
func NewDependencies(names ...string) Dependencies {
	d := Dependencies{prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gateway_dependency_up", Help: "1 while the dependency responds to this process, 0 while it does not, NaN while unknown.",
	}, []string{"dependency"})}
	for _, name := range names {
		d.WithLabelValues(name).Set(math.NaN())
	}
	return d
}

// Set sets whether a dependency responds.
func (d Dependencies) Set(name string, up bool) {
	value := 0.0
	if up {
		value = 1
	}
	d.WithLabelValues(name).Set(value)
}

// SetDatabase sets the result of a write to Postgres. unreplicated means that Postgres responds but
// no synchronous standby confirms its commits: then replication is down, and database is not.
func (d Dependencies) SetDatabase(err error, unreplicated bool) {
	d.Set("database", err == nil || unreplicated)
	if err == nil || unreplicated {
		d.Set("replication", err == nil)
	}
}
