package httpapi

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
)

// dependencies has /metrics say what the api itself reaches, asked at each scrape. An api that is not
// ready gets no requests from a load balancer, so no request fails that could tell of it.
type dependencies struct {
	telemetry.Dependencies
	health *healthCheck
}

// Collect asks, and takes healthTimeout at most for each.
func (d dependencies) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
	defer cancel()
	_, err := within(ctx, d.health.confirm)
	d.SetDatabase(err, errors.Is(err, store.ErrUnreplicated))
	if d.health.storage != nil {
		d.Set("storage", d.health.storage.status(ctx) == accessible)
	}
	d.Dependencies.Collect(metrics)
}

// confirming asks a store whether commits go through.
func confirming(s Store) func(context.Context) (struct{}, error) {
	return func(ctx context.Context) (struct{}, error) { return struct{}{}, s.Confirm(ctx) }
}
