package health

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"email-gateway/shared/logtest"
	"email-gateway/shared/store"
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/process"
	"email-gateway/shared/telemetry"
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

type unconfirmed struct{ Store }

func (unconfirmed) Confirm(context.Context) error { return errors.New("connection refused") }

// The log says why Postgres does not respond, once.
func TestConfirming_LogsReason(t *testing.T) {
	t.Parallel()
	log := &logtest.Buffer{}
	confirm := confirming(unconfirmed{}, telemetry.NewDependencyLog(slog.New(slog.NewTextHandler(log, nil))))
	for range 2 {
		if _, err := confirm(t.Context()); err == nil {
			t.Error("confirmed")
		}
	}
	if log.Count("dependency=database error=\"connection refused\"") != 1 {
		t.Errorf("logged: %s", log.String())
	}
}
