package telemetry

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// Dependencies is the metric gateway_dependency_up, which all programs show: whether what
// they depend on answers them. It is a collector, to be registered once.
type Dependencies struct{ *prometheus.GaugeVec }

// NewDependencies shows those that are named as not known yet (NaN). Their names are those of
// /health: database, redis, rabbitmq, ses, storage; and replication, which SetDatabase sets.
func NewDependencies(names ...string) Dependencies {
	d := Dependencies{prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gateway_dependency_up", Help: "1 while what this process depends on answers it, 0 while it does not, NaN while not known.",
	}, []string{"dependency"})}
	for _, name := range names {
		d.WithLabelValues(name).Set(math.NaN())
	}
	return d
}

// Set says whether one of them answers.
func (d Dependencies) Set(name string, up bool) {
	value := 0.0
	if up {
		value = 1
	}
	d.WithLabelValues(name).Set(value)
}

// SetDatabase shows what a write to Postgres ended with. unreplicated says that Postgres answers, and no synchronous
// standby confirms what it commits: then the dependency replication is down, and database is not.
func (d Dependencies) SetDatabase(err error, unreplicated bool) {
	d.Set("database", err == nil || unreplicated)
	if err == nil || unreplicated {
		d.Set("replication", err == nil)
	}
}
