package health

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
)

// dependencies exports on /metrics which components the api reaches, checked at each scrape.
// A load balancer sends no requests to an api that is not ready, so failing requests cannot show it.
type dependencies struct {
	telemetry.Dependencies
	health *Check
}

// Collect checks the components, each for at most timeout.
func (d dependencies) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err := reqctx.WithDeadline(ctx, d.health.confirm)
	d.SetDatabase(err, errors.Is(err, store.ErrUnreplicated))
	d.Set("storage", d.health.storage.status(ctx) == accessible)
	d.Dependencies.Collect(metrics)
}

// Register exports the components on a registry.
func (hc *Check) Register(registry *prometheus.Registry) error {
	if err := registry.Register(dependencies{telemetry.NewDependencies(), hc}); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// confirming returns a check that Postgres confirms commits. It logs why not.
func confirming(s Store, log *telemetry.DependencyLog) func(context.Context) (struct{}, error) {
	return func(ctx context.Context) (struct{}, error) {
		err := s.Confirm(ctx)
		log.SetDatabase(err, errors.Is(err, store.ErrUnreplicated))
		return struct{}{}, err
	}
}
