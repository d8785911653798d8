package store

import (
	"context"
	"log/slog"
	"time"

	"email-gateway/shared/service"
	"email-gateway/shared/uuidv7"
)

// clockInterval is how long ids may have a wrong time after Postgres's clock has changed, as in a failover, or this machine
// was suspended.
const clockInterval = 10 * time.Second

// ReadClock makes the ids of this process follow Postgres's clock. Open has called it once.
func (s *Store) ReadClock(ctx context.Context) error { return s.db.ReadClock(ctx, uuidv7.Process()) }

// NewClock returns the service that calls ReadClock in a process that keeps running.
func (s *Store) NewClock(log *slog.Logger) *service.Loop {
	return service.NewLoop(service.LoopParams{Log: log, Interval: clockInterval, RunOnce: func(ctx context.Context) (more bool, err error) {
		return false, s.ReadClock(ctx)
	}})
}
