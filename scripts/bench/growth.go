package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/scripts/bench/history"
)

func growth() Section {
	return Section{Name: "growth", What: "every step with 1 M and 10 M emails in the tables, beside the same with 10 k", Run: runGrowth}
}

// runGrowth measures every step with some emails in the tables, many, and very many, in turns:
// each size is a system of its own.
func runGrowth(ctx context.Context, r *Rig, t *Table) (err error) {
	few := scale(r, 10_000, 1_000)
	sizes := scale(r, []int{1_000_000, 10_000_000}, []int{10_000, 100_000})
	n := scale(r, 20_000, 4_000)

	var grown []*gateway
	defer func() {
		for _, g := range grown {
			err = errors.Join(err, g.close(context.WithoutCancel(ctx)))
		}
	}()
	for _, size := range sizes {
		g, opening := r.openGateway(ctx, gatewayOptions{env: throughput()})
		if opening != nil {
			return opening
		}
		grown = append(grown, g)
		if err := g.grow(ctx, t, size); err != nil {
			return err
		}
	}
	for range t.Rounds() {
		small, err := r.smallLap(ctx, t, few, n)
		if err != nil {
			return err
		}
		for i, g := range grown {
			large, err := g.lap(ctx, n)
			if err != nil {
				return err
			}
			t.recordGrowth(sizes[i], few, large, small)
		}
	}
	return nil
}

// smallLap is a lap on a system that is made anew for it: the emails of another lap would
// soon be most of its rows.
func (r *Rig) smallLap(ctx context.Context, t *Table, size, n int) (result rates, err error) {
	g, err := r.openGateway(ctx, gatewayOptions{env: throughput()})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, g.close(context.WithoutCancel(ctx))) }()
	if err := g.grow(ctx, t, size); err != nil {
		return result, err
	}
	return g.lap(ctx, n)
}

func (t *Table) recordGrowth(size, few int, large, small rates) {
	for _, step := range []struct {
		name         string
		large, small float64
	}{
		{"accept", large.Accept, small.Accept},
		{"dispatch", large.Dispatch, small.Dispatch},
		{"send", large.Send, small.Send},
		{"whole way", large.Whole, small.Whole},
	} {
		t.Say("%s  %s emails/s at %d emails, %s at %d", step.name, figure(step.large), size, figure(step.small), few)
		t.RecordPair(
			Subject{Name: fmt.Sprintf("%s at %d emails in the tables", step.name, size), Unit: "emails/s"},
			Reference{Name: fmt.Sprintf("at %d", few), Budget: 0.8, Moonshot: 0.95},
			step.large, step.small,
		)
	}
}

// grow fills the tables with sent emails, one of which really was, and tells how large they
// have become.
func (g *gateway) grow(ctx context.Context, t *Table, size int) error {
	begun := time.Now()
	if err := g.rig.EmptyRedis(ctx); err != nil {
		return err
	}
	if err := g.start(ctx); err != nil {
		return err
	}
	taken := g.ses.Taken()
	model, err := g.tenant.post(ctx, g.serial.Add(1))
	if err == nil {
		err = g.awaitSent(ctx, taken, begun, 1)
	}
	if err := errors.Join(err, g.stop(ctx)); err != nil {
		return err
	}
	if err := g.shorten(ctx, model); err != nil {
		return err
	}
	if err := g.rig.withoutAutovacuum(ctx, func() error {
		if err := history.Add(ctx, g.system.Database, model, size); err != nil {
			return err
		}
		return g.system.Settle(ctx)
	}); err != nil {
		return err
	}
	bytes, err := g.system.Count(ctx, `SELECT pg_database_size(current_database())`)
	if err != nil {
		return err
	}
	t.Say("%d emails stand in the tables, %.1f GB with their indexes, after %s", size, float64(bytes)/1e9, time.Since(begun).Round(time.Second))
	return nil
}

// withoutAutovacuum keeps autovacuum from going over tables again and again while they are
// filled; work ends with a vacuum of its own.
func (r *Rig) withoutAutovacuum(ctx context.Context, work func() error) error {
	set := func(ctx context.Context, statement string) error {
		for _, s := range []string{statement, "SELECT pg_reload_conf()"} {
			if _, err := r.server.ExecContext(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	}
	if err := set(ctx, "ALTER SYSTEM SET autovacuum = off"); err != nil {
		return err
	}
	return errors.Join(work(), set(context.WithoutCancel(ctx), "ALTER SYSTEM RESET autovacuum"))
}

// shorten leaves the model a body of 200 bytes, so that ten million of them find room on
// a disk of some dozen gigabytes. The rows stay wide enough: about 1.1 KB in the outbox,
// 400 bytes in the log, 600 in four events.
func (g *gateway) shorten(ctx context.Context, model uuid.UUID) error {
	return g.system.exec(ctx, `UPDATE email_outbox SET html = left(html, 200) WHERE id = $1`, model)
}
