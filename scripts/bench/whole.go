package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"email-gateway/scripts/bench/peer"
)

// wholeConcurrency is how many emails the worker has in hand at once here: with more of them
// the groups in which it writes are larger, and the time for each email shorter.
const wholeConcurrency = "256"

func whole() Section {
	return Section{Name: "whole", What: "POST to SENT as a closed batch, beside River: insert to completed", Run: runWhole}
}

// runWhole measures the way of an email from its POST to SENT, as a closed batch, beside
// River: as many jobs of the same bytes, each inserted in a transaction of its own and
// completed without anything done for it. Both have the machine to themselves.
func runWhole(ctx context.Context, r *Rig, t *Table) (err error) {
	g, err := r.openGateway(ctx, gatewayOptions{env: throughput()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close(context.WithoutCancel(ctx))) }()
	river, err := r.openRiver(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, river.close(context.WithoutCancel(ctx))) }()

	n := scale(r, 20_000, 2_000)
	return t.Compare(ctx,
		Subject{Name: fmt.Sprintf("batch of %d", n), Unit: "emails/s", Measure: func(ctx context.Context) (float64, error) {
			return g.wholeTurn(ctx, t, n)
		}},
		Reference{Name: "River, insert and no-op work", Budget: 0.9, Moonshot: 1.2, Measure: func(ctx context.Context) (float64, error) {
			return river.turn(ctx, t, n)
		}})
}

// wholeTurn starts the programs, sends n emails and stops them again.
func (g *gateway) wholeTurn(ctx context.Context, t *Table, n int) (rate float64, err error) {
	if err := g.start(ctx); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, g.stop(ctx)) }()
	if err := g.warmUp(ctx); err != nil {
		return 0, err
	}
	if err := g.system.Settle(ctx); err != nil {
		return 0, err
	}
	m := newMeter(g.rig, []*Program{g.api, g.dispatcher, g.worker}, g.rig.Postgres, g.rig.Redis)
	if err := m.start(); err != nil {
		return 0, err
	}
	b, err := g.sendBatch(ctx, n)
	if err := errors.Join(err, m.stop()); err != nil {
		return 0, err
	}
	m.record(t, "", "email", float64(b.emails))
	t.Record(Quantity{Name: "cpu per email, all of these", Unit: "µs"}, each(m.Spent, b.emails))
	return perSecond(b.emails, b.sent), nil
}

// each is the share of one in n of all these times, in microseconds.
func each(spent []time.Duration, n int) float64 {
	var sum time.Duration
	for _, s := range spent {
		sum += s
	}
	return float64(sum.Microseconds()) / float64(n)
}

// riverPeer is a River on a database of its own beside the systems', in this process.
type riverPeer struct {
	*peer.River
	rig *Rig
}

const riverDatabase = "bench_river"

func (r *Rig) openRiver(ctx context.Context) (*riverPeer, error) {
	if _, err := r.server.ExecContext(ctx, "CREATE DATABASE "+riverDatabase); err != nil {
		return nil, fmt.Errorf("create database: %w", err)
	}
	opened, err := peer.Open(ctx, r.databaseURL(riverDatabase))
	if err != nil {
		return nil, err
	}
	return &riverPeer{River: opened, rig: r}, nil
}

func (p *riverPeer) close(ctx context.Context) error {
	p.Close()
	if _, err := p.rig.server.ExecContext(ctx, "DROP DATABASE "+riverDatabase+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return nil
}

// turn has River work off n jobs, whose bytes are those of letters.
func (p *riverPeer) turn(ctx context.Context, t *Table, n int) (rate float64, err error) {
	text, err := newLetter()
	if err != nil {
		return 0, err
	}
	jobs := make([]peer.Email, n)
	for i := range jobs {
		jobs[i].RawMessage = text.append(nil, int64(i))
	}
	if _, err := p.rig.server.ExecContext(ctx, "CHECKPOINT"); err != nil {
		return 0, fmt.Errorf("checkpoint: %w", err)
	}
	// River works in this process, and so does who inserts.
	m := newMeter(p.rig, nil, p.rig.Postgres)
	m.names, m.read = append(m.names, "river"), append(m.read, func() (Usage, error) { return usageOf(os.Getpid()) })
	if err := m.start(); err != nil {
		return 0, err
	}
	took, err := p.Run(ctx, jobs)
	if err := errors.Join(err, m.stop()); err != nil {
		return 0, err
	}
	completed, err := p.Completed(ctx)
	if err == nil && completed != n {
		err = fmt.Errorf("river completed %d jobs of %d", completed, n)
	}
	m.record(t, "River: ", "job", float64(n))
	t.Record(Quantity{Name: "River: cpu per job, all of these", Unit: "µs"}, each(m.Spent, n))
	return perSecond(n, took), err
}
