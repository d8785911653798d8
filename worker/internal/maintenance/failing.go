package maintenance

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// failing reports in maintenance_failing_seconds for how long each round of a kind of deletion has failed. It is not the age of
// the last complete round: a round that deletes a backlog may take hours.
type failing struct {
	since atomic.Pointer[time.Time] // the end of the first failed round behind the last complete one; nil = none
}

func newFailing(registry prometheus.Registerer, kind string) *failing {
	f := &failing{}
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "maintenance_failing_seconds", Help: "For how long each round of deletions of this kind has failed; 0 if the last one was complete.",
		ConstLabels: prometheus.Labels{"kind": kind},
	}, f.seconds))
	return f
}

func (f *failing) seconds() float64 {
	since := f.since.Load()
	if since == nil {
		return 0
	}
	return time.Since(*since).Seconds()
}

// ended records the result of a round.
func (f *failing) ended(err error) {
	if err == nil {
		f.since.Store(nil)
		return
	}
	now := time.Now()
	f.since.CompareAndSwap(nil, &now)
}
