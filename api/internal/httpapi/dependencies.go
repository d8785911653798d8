package httpapi

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
)

// dependencies exports on /metrics which components the api reaches, checked at each scrape.
// A load balancer sends no requests to an api that is not ready, so failing requests cannot show it.
type dependencies struct {
	telemetry.Dependencies
	health *healthCheck
}

// Collect checks the components, each for at most healthTimeout.
func (d dependencies) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
	defer cancel()
	_, err := withDeadline(ctx, d.health.confirm)
	d.SetDatabase(err, errors.Is(err, store.ErrUnreplicated))
	if d.health.storage != nil {
		d.Set("storage", d.health.storage.status(ctx) == accessible)
	}
	d.Dependencies.Collect(metrics)
}

// confirming returns a check that commits go through.
func confirming(s Store) func(context.Context) (struct{}, error) {
	return func(ctx context.Context) (struct{}, error) { return struct{}{}, s.Confirm(ctx) }
}
