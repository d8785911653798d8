// Package eventfeed gives the events of emails their positions in the feed of their company, which
// GET /v1/events and webhooks read.
package eventfeed

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
)

const (
	// interval is how long an event may wait for its position when nothing else happens.
	interval = 200 * time.Millisecond
	// batch rows take some tens of milliseconds. A row has the events of up to 256 emails.
	batch = 2000
	// lagInterval is how often the lag is measured.
	lagInterval = 15 * time.Second
)

// Store has the statements of the sequencer. *event.Store is one.
type Store interface {
	AssignPositions(ctx context.Context, limit int) (int, error)
	Lag(ctx context.Context) (time.Duration, error)
}

// Params configure a Sequencer.
type Params struct {
	Log      *slog.Logger
	Store    Store
	Registry prometheus.Registerer
}

// Sequencer assigns positions. Any number may run: one at a time does a round, the others skip it.
type Sequencer struct {
	*service.Loop
	params   Params
	lag      prometheus.Gauge
	measured time.Time
}

// NewSequencer makes a Sequencer that is not running yet.
func NewSequencer(p Params) *Sequencer {
	s := &Sequencer{params: p, lag: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "event_feed_lag_seconds", Help: "Age of the oldest committed event without a position in the feed. NaN = not known.",
	})}
	p.Registry.MustRegister(s.lag)
	s.Loop = service.NewLoop(service.LoopParams{Log: p.Log, Interval: interval, RunOnce: s.runOnce})
	return s
}

func (s *Sequencer) runOnce(ctx context.Context) (more bool, err error) {
	if time.Since(s.measured) > lagInterval {
		s.measured = time.Now()
		s.measure(ctx)
	}
	assigned, err := s.params.Store.AssignPositions(ctx, batch)
	return assigned == batch, err
}

// measure sets the metric. Its error would only repeat that of the round, which is logged.
func (s *Sequencer) measure(ctx context.Context) {
	lag, err := s.params.Store.Lag(ctx)
	if err != nil {
		s.lag.Set(math.NaN())
		return
	}
	s.lag.Set(lag.Seconds())
}
