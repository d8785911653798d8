package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"email-gateway/shared/email"
)

// outageLogInterval is how often the reason is logged while a dependency does not respond: the first one may be another than
// the one that lasts.
const outageLogInterval = 5 * time.Minute

// DependencyLog logs when a dependency stops responding to this process and why, and when it responds again. It is safe for
// concurrent use.
type DependencyLog struct {
	log *slog.Logger

	mu   sync.Mutex
	down map[string]outage
}

type outage struct {
	since, loggedAt time.Time
	timeout         string // what was logged, if it was a timeout only; the next other error has the reason
}

// NewDependencyLog makes a DependencyLog. Dependencies that have never failed are not logged.
func NewDependencyLog(log *slog.Logger) *DependencyLog {
	return &DependencyLog{log: log, down: map[string]outage{}}
}

// Set logs the result of a check if it differs from the last one. The result of a check that was cancelled is ignored.
func (d *DependencyLog) Set(name string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	last, down := d.down[name]
	switch {
	case err == nil && down:
		delete(d.down, name)
		d.log.Info("dependency responds again", "dependency", name, "interrupted", now.Sub(last.since).Round(time.Millisecond).String())
	case err != nil && (!down || now.Sub(last.loggedAt) >= outageLogInterval || last.timeout != "" && last.timeout != err.Error()):
		next := outage{since: last.since, loggedAt: now}
		if !down {
			next.since = now
		}
		if last.timeout == "" && errors.Is(err, context.DeadlineExceeded) {
			next.timeout = err.Error()
		}
		d.down[name] = next
		d.log.Warn("dependency does not respond", "dependency", name, "error", email.MaskText(err.Error()))
	}
}

// SetDatabase is Set for the result of a write to Postgres: see Dependencies.SetDatabase.
func (d *DependencyLog) SetDatabase(err error, unreplicated bool) {
	if unreplicated {
		d.Set("database", nil)
		d.Set("replication", err)
		return
	}
	d.Set("database", err)
	if err == nil {
		d.Set("replication", nil)
	}
}

// Wrap returns a check whose results are logged.
func (d *DependencyLog) Wrap(name string, check func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := check(ctx)
		d.Set(name, err)
		return err
	}
}
