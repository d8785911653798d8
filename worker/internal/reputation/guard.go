// Package reputation runs the reputation guard: it pauses the mailings of companies whose emails bounce or
// draw complaints too often. The rules and the measurement are those of shared/store/reputation.
package reputation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"email-gateway/shared/service"
	"email-gateway/shared/store/reputation"
	"email-gateway/shared/telemetry"
)

const (
	// interval is how old new feedback may be before its company is checked.
	interval = 5 * time.Second
	// concurrency is how many companies are checked at the same time: one that takes long, or whose row is
	// locked, keeps one of these places.
	concurrency = 8
	// checkTime limits one check. The first one after a day without feedback reads what the company has sent in
	// that day.
	checkTime = 20 * time.Second
	// cleanInterval is the time between two deletions of old rows, cleanBatch how many rows one deletes.
	cleanInterval = time.Minute
	cleanBatch    = 10_000
)

// Store has the database operations of the guard. *reputation.Store implements it.
type Store interface {
	SetDefaults(ctx context.Context, enabled bool, rules map[reputation.Rule]reputation.Thresholds) error
	Due(ctx context.Context) ([]uuid.UUID, error)
	Check(ctx context.Context, company uuid.UUID) (reputation.Checked, error)
	CountPaused(ctx context.Context) (int, error)
	Clean(ctx context.Context, limit int) (int, error)
}

// Params configure a Guard. All are required.
type Params struct {
	Log      *slog.Logger
	Store    Store
	Registry prometheus.Registerer
	// Enabled and Rules apply to companies without settings of their own.
	Enabled bool
	Rules   map[reputation.Rule]reputation.Thresholds
}

// Guard checks the companies that have new feedback. Any number may run.
type Guard struct {
	*service.Loop
	params  Params
	metrics *metrics
	stored  bool // the defaults
	cleaned time.Time
	failed  map[uuid.UUID]bool // companies whose last check failed
}

// NewGuard makes a guard that is not running yet.
func NewGuard(p Params) *Guard {
	g := &Guard{params: p, metrics: newMetrics(p.Registry), failed: make(map[uuid.UUID]bool)}
	g.Loop = service.NewLoop(service.LoopParams{Log: p.Log, Interval: interval, RunOnce: g.runOnce})
	return g
}

func (g *Guard) runOnce(ctx context.Context) (more bool, err error) {
	if !g.stored { // once, so that a dispatcher about to be replaced does not overwrite those of its successor
		if err := g.params.Store.SetDefaults(ctx, g.params.Enabled, g.params.Rules); err != nil {
			return false, err
		}
		g.stored = true
	}
	due, err := g.params.Store.Due(ctx)
	if err != nil {
		g.metrics.unknown()
		return false, err
	}
	more, err = g.checkAll(ctx, due)
	paused, counted := g.params.Store.CountPaused(ctx)
	if counted == nil {
		g.metrics.companies.Set(float64(paused))
	} else {
		g.metrics.unknown()
	}
	return more, errors.Join(err, counted, g.clean(ctx))
}

// checkAll checks the companies, several at a time. Those whose last check failed come last: if many are
// locked, they delay no others.
func (g *Guard) checkAll(ctx context.Context, due []uuid.UUID) (more bool, err error) {
	slices.SortStableFunc(due, func(a, b uuid.UUID) int { return rank(g.failed[a]) - rank(g.failed[b]) })
	results, errs := make([]reputation.Checked, len(due)), make([]error, len(due))
	var running errgroup.Group
	running.SetLimit(concurrency)
	for i, company := range due {
		running.Go(func() error {
			one, cancel := context.WithTimeout(ctx, checkTime)
			defer cancel()
			results[i], errs[i] = g.params.Store.Check(one, company)
			if errs[i] == nil {
				g.report(company, results[i])
			}
			return nil
		})
	}
	_ = running.Wait() // the errors are in errs
	failed := make(map[uuid.UUID]bool)
	for i, company := range due {
		more = more || results[i].More
		if errs[i] != nil {
			failed[company] = true
			errs[i] = fmt.Errorf("company %s: %w", company, errs[i])
		}
	}
	g.failed = failed
	g.metrics.failing.Set(float64(len(failed)))
	return more && ctx.Err() == nil, errors.Join(errs...)
}

func rank(failed bool) int {
	if failed {
		return 1
	}
	return 0
}

// report logs and counts what a check has done.
func (g *Guard) report(company uuid.UUID, done reputation.Checked) {
	for _, w := range done.Warnings {
		g.metrics.warnings.WithLabelValues(string(w.Rule)).Inc()
		g.params.Log.Warn("reputation of a company is close to a pause of its mailings", attributes(company, w)...)
	}
	if p := done.Paused; p != nil {
		g.metrics.pauses.WithLabelValues(string(p.Rule)).Inc()
		g.params.Log.Warn("mailings of a company paused: too many of its emails bounce or draw complaints", attributes(company, *p)...)
	}
}

func attributes(company uuid.UUID, f reputation.Finding) []any {
	return []any{
		telemetry.CompanyID, company, "rule", string(f.Rule), "ratePercent", f.RatePercent, "thresholdPercent", f.ThresholdPercent,
		"sent", f.Sent, "events", f.Events,
	}
}

// clean deletes old rows from time to time.
func (g *Guard) clean(ctx context.Context) error {
	if time.Since(g.cleaned) < cleanInterval {
		return nil
	}
	deleted, err := g.params.Store.Clean(ctx, cleanBatch)
	if err == nil && deleted < cleanBatch {
		g.cleaned = time.Now()
	}
	return err
}
