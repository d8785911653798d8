package health

import (
	"context"
	"errors"
	"testing"

	"email-gateway/shared/store"
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/process"
)

// /health reports why nothing can be accepted: Postgres may answer queries without confirming commits.
func TestHealth_DatabaseThatAcceptsNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		confirm, listing error
		status, database string
	}{
		{"all is well", nil, nil, "degraded", connected}, // no dispatcher and no worker
		{"no standby", errors.Join(store.ErrUnknownOutcome, store.ErrUnreplicated), nil, "unavailable", unreplicated},
		{"no standby, full pool", errors.Join(store.ErrUnavailable, store.ErrUnreplicated), store.ErrUnavailable, "unavailable", unreplicated},
		{"no tables", nil, store.ErrNotMigrated, "unavailable", notMigrated},
		{"no Postgres", store.ErrUnavailable, store.ErrUnavailable, "unavailable", disconnected},
	} {
		hc := &Check{
			confirm:  func(context.Context) (struct{}, error) { return struct{}{}, c.confirm },
			statuses: func(context.Context) ([]process.Status, error) { return nil, c.listing },
			breaker:  func(context.Context) (breaker.Breaker, error) { return breaker.Breaker{}, nil },
			storage:  &storageCheck{ping: func(context.Context) error { return nil }},
		}
		if h := hc.check(t.Context()); h.Status != c.status || h.Database.Status != c.database {
			t.Errorf("%s: %s, database %s; want %s, %s", c.name, h.Status, h.Database.Status, c.status, c.database)
		}
	}
}
