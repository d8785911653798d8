package maintenance

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
)

// failing reports in maintenance_failing_seconds for how long each round of a kind of deletion has failed, from the end of the
// first failed round to that of the last one: while no round ends, nothing is known to fail. It is not the age of the last
// complete round: a round that deletes a backlog may take hours.
type failing struct {
	first   time.Time // the end of the first failed round after the last complete one; zero = none
	seconds prometheus.Gauge
}

func newFailing(registry prometheus.Registerer, kind string) *failing {
	f := &failing{seconds: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "maintenance_failing_seconds", Help: "Time from the first to the last of the consecutive failed rounds of deletions of this kind; 0 if the last one was complete.",
		ConstLabels: prometheus.Labels{"kind": kind},
	})}
	registry.MustRegister(f.seconds)
	return f
}

// round runs a round and records its result. A round that panics has failed.
func (f *failing) round(ctx context.Context, runOnce func(ctx context.Context) (bool, error)) (more bool, err error) {
	more, err = service.Recovered(func() (bool, error) { return runOnce(ctx) })
	switch now := time.Now(); {
	case err == nil:
		f.first = time.Time{}
		f.seconds.Set(0)
	case f.first.IsZero():
		f.first = now
	default:
		f.seconds.Set(now.Sub(f.first).Seconds())
	}
	return more, err
}
