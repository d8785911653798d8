package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/peer"
	"email-gateway/scripts/bench/results"
	"email-gateway/scripts/local"
)

// wholeConcurrency is the worker's concurrency here: more emails in flight make the groups of its
// writes larger, and the time per email shorter.
const wholeConcurrency = "256"

func whole() Section {
	return Section{Name: "whole", What: "POST to SENT as a closed batch, compared with River: insert to completed", Run: runWhole}
}

// runWhole measures emails end to end from POST to SENT, as a closed batch, compared with River: as
// many jobs of the same size, each inserted in a transaction of its own and completed by a no-op
// worker. They do not run at the same time.
func runWhole(ctx context.Context, r *environment.Environment, t *results.Table) (err error) {
	g, err := openGateway(ctx, r, gatewayOptions{env: throughput()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close(context.WithoutCancel(ctx))) }()
	river, err := openRiver(ctx, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, river.close(context.WithoutCancel(ctx))) }()

	n := environment.Scale(r, 20_000, 2_000)
	return t.Compare(ctx,
		results.Subject{Name: fmt.Sprintf("batch of %d", n), Unit: "emails/s", Measure: func(ctx context.Context) (float64, error) {
			return g.wholeTurn(ctx, t, n)
		}},
		results.Reference{Name: "River, insert and no-op work", Budget: 0.9, Moonshot: 1.2, Measure: func(ctx context.Context) (float64, error) {
			return river.turn(ctx, t, n)
		}})
}

// wholeTurn starts the programs, sends n emails and stops the programs.
func (g *gateway) wholeTurn(ctx context.Context, t *results.Table, n int) (rate float64, err error) {
	if err := g.start(ctx); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, g.stop(ctx)) }()
	if err := g.warmUp(ctx); err != nil {
		return 0, err
	}
	if err := g.system.Vacuum(ctx); err != nil {
		return 0, err
	}
	m := environment.NewMeter([]*environment.Program{g.api, g.dispatcher, g.worker}, g.environment.Postgres, g.environment.Redis)
	if err := m.Start(); err != nil {
		return 0, err
	}
	b, err := g.sendBatch(ctx, n)
	if err := errors.Join(err, m.Stop()); err != nil {
		return 0, err
	}
	m.Record(t, "", "email", float64(b.emails))
	t.Record(results.Quantity{Name: "cpu per email, all of these", Unit: "µs"}, each(m.Spent, b.emails))
	return perSecond(b.emails, b.sent), nil
}

// each returns the sum of these times divided by n, in microseconds.
func each(spent []time.Duration, n int) float64 {
	var sum time.Duration
	for _, s := range spent {
		sum += s
	}
	return float64(sum.Microseconds()) / float64(n)
}

// riverPeer is a River in this process, with a database of its own.
type riverPeer struct {
	*peer.River
	environment *environment.Environment
}

const riverDatabase = "bench_river"

func openRiver(ctx context.Context, r *environment.Environment) (*riverPeer, error) {
	if _, err := r.Server.ExecContext(ctx, "CREATE DATABASE "+riverDatabase); err != nil {
		return nil, fmt.Errorf("create database: %w", err)
	}
	opened, err := peer.Open(ctx, r.DatabaseURL(riverDatabase))
	if err != nil {
		return nil, err
	}
	return &riverPeer{River: opened, environment: r}, nil
}

func (p *riverPeer) close(ctx context.Context) error {
	p.Close()
	if _, err := p.environment.Server.ExecContext(ctx, "DROP DATABASE "+riverDatabase+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return nil
}

// turn runs n jobs with the bodies of emails through River.
func (p *riverPeer) turn(ctx context.Context, t *results.Table, n int) (rate float64, err error) {
	text, err := environment.NewEmailTemplate()
	if err != nil {
		return 0, err
	}
	jobs := make([]peer.Email, n)
	for i := range jobs {
		jobs[i].RawMessage = text.Append(nil, int64(i))
	}
	if _, err := p.environment.Server.ExecContext(ctx, "CHECKPOINT"); err != nil {
		return 0, fmt.Errorf("checkpoint: %w", err)
	}
	// River and the inserters run in this process.
	m := environment.NewMeter(nil, p.environment.Postgres)
	m.Add("river", func() (local.Usage, error) { return local.UsageOf(os.Getpid()) })
	if err := m.Start(); err != nil {
		return 0, err
	}
	took, err := p.Run(ctx, jobs)
	if err := errors.Join(err, m.Stop()); err != nil {
		return 0, err
	}
	completed, err := p.Completed(ctx)
	if err == nil && completed != n {
		err = fmt.Errorf("river completed %d jobs of %d", completed, n)
	}
	m.Record(t, "River: ", "job", float64(n))
	t.Record(results.Quantity{Name: "River: cpu per job, all of these", Unit: "µs"}, each(m.Spent, n))
	return perSecond(n, took), err
}
