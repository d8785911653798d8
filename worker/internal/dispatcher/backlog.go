package dispatcher

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	backlogInterval = 10 * time.Second
	// backlogLimit is the highest backlog that the metric tells. Counting this far
	// takes some tens of milliseconds.
	backlogLimit = 200_000
)

// backlog measures what waits in the outbox. Several dispatchers measure the same.
type backlog struct {
	outbox Outbox
	gauge  prometheus.Gauge
}

func (b backlog) measure(ctx context.Context) (more bool, err error) {
	n, err := b.outbox.CountPending(ctx, backlogLimit)
	if err != nil {
		return false, nil // the feeders tell of the outage
	}
	b.gauge.Set(float64(n))
	return false, nil
}
