package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/uuidv7"
)

// newClockGauge compares the clock that the process follows, Postgres's as of the last 10 s, with that of this machine.
func newClockGauge() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "postgres_clock_ahead_seconds",
		Help: "How far Postgres's clock is ahead of this machine's; negative if it is behind. Above 3600, no expired data is deleted.",
	}, func() float64 { return uuidv7.Now().Sub(time.Now().Round(0)).Seconds() })
}
