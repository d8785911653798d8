package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/load"
	"email-gateway/scripts/bench/results"
)

const (
	// quietRate is SES's limit per second here: low enough that the other tenant's backlog lasts
	// for the whole measurement, as it would for hours in production.
	quietRate = 200
	// quietEvery is the mean time between two emails of the quiet tenant.
	quietEvery = 150 * time.Millisecond
)

func quiet() Section {
	return Section{Name: "quiet", What: "POST to SES for a quiet tenant while another has 1 M emails queued, compared with an empty queue", Run: runQuiet}
}

// runQuiet measures how much another tenant's backlog delays a quiet tenant's email.
func runQuiet(ctx context.Context, r *environment.Environment, t *results.Table) error {
	backlog := environment.Scale(r, 1_000_000, 20_000)
	return compareQuiet(ctx, r, t, quietCase{
		tenants: 1, seed: func(s *environment.System) error { return s.Seed(ctx, backlog) },
		idle: "other tenant idle", busy: fmt.Sprintf("other tenant has %d queued", backlog), added: "added by the other tenant",
		budget: 1200, moonshot: 200,
	})
}

// quietCase describes the load of other tenants.
type quietCase struct {
	tenants           int                             // quiet ones, which send in turn
	seed              func(*environment.System) error // inserts the emails of others
	idle, busy, added string                          // names of the rows
	budget, moonshot  float64                         // of the increase of p99, in ms
}

// warmUps is how many emails a turn sends before those it measures.
const warmUps = 20

// compareQuiet alternately measures two systems with the same quiet tenants, one of which has no
// other load.
func compareQuiet(ctx context.Context, r *environment.Environment, t *results.Table, c quietCase) (err error) {
	timer := load.NewStopwatch()
	idle, err := openQuiet(ctx, r, timer, c.tenants)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, idle.close(context.WithoutCancel(ctx))) }()
	busy, err := openQuiet(ctx, r, timer, c.tenants)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, busy.close(context.WithoutCancel(ctx))) }()

	start := time.Now()
	if err := c.seed(busy.system); err != nil {
		return err
	}
	if err := busy.system.Vacuum(ctx); err != nil {
		return err
	}
	t.Say("%s after %s; SES accepts %d/s", c.busy, time.Since(start).Round(time.Second), quietRate)
	p := load.Pace{N: quietEmails(r), Every: quietEvery, Jitter: true}
	for range t.Rounds() {
		alone, err := idle.quietTurn(ctx, timer, p)
		if err != nil {
			return err
		}
		beside, err := busy.quietTurn(ctx, timer, p)
		if err != nil {
			return err
		}
		for _, q := range []struct {
			name             string
			percent          float64
			budget, moonshot float64
		}{{name: "p50", percent: 50}, {name: "p99", percent: 99, budget: c.budget, moonshot: c.moonshot}} {
			with, without := load.Percentile(beside, q.percent), load.Percentile(alone, q.percent)
			t.Say("%s: %s ms, %s ms with the load of others", q.name, results.Figure(without), results.Figure(with))
			t.Record(results.Quantity{Name: "POST to SES, " + q.name + ", " + c.idle, Unit: "ms"}, without)
			t.Record(results.Quantity{Name: "POST to SES, " + q.name + ", " + c.busy, Unit: "ms"}, with)
			t.Record(results.Quantity{Name: c.added + ", " + q.name, Unit: "ms", Budget: q.budget, Moonshot: q.moonshot}, with-without)
		}
	}
	return nil
}

// quietEmails is how many emails a turn measures.
func quietEmails(r *environment.Environment) int { return environment.Scale(r, 100, 30) }

// openQuiet returns a system with that many quiet tenants in addition to the first one.
func openQuiet(ctx context.Context, r *environment.Environment, timer *load.Stopwatch, tenants int) (*gateway, error) {
	g, err := openGateway(ctx, r, gatewayOptions{rate: quietRate, onSend: timer.Arrive})
	if err != nil {
		return nil, err
	}
	g.keys = make([]string, tenants)
	for i := range g.keys {
		if g.keys[i], err = g.system.Tenant(ctx, fmt.Sprintf("Quieta %d", i+1), fmt.Sprintf("Quieta <aviso@quieta%d.example>", i+1)); err != nil {
			return nil, errors.Join(err, g.close(context.WithoutCancel(ctx)))
		}
	}
	return g, nil
}

// quietTurn starts the system, waits until it works at its full rate, and measures.
func (g *gateway) quietTurn(ctx context.Context, timer *load.Stopwatch, p load.Pace) ([]time.Duration, error) {
	if err := g.environment.EmptyRedis(ctx); err != nil {
		return nil, err
	}
	if err := g.start(ctx); err != nil {
		return nil, err
	}
	// The first emails wait until connections are open and the backlog fills the window.
	if _, err := g.measureTimes(ctx, timer, load.Pace{N: warmUps, Every: p.Every}); err != nil {
		return nil, err
	}
	times, err := g.measureTimes(ctx, timer, p)
	return times, errors.Join(err, g.stop(ctx))
}
