package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/history"
	"email-gateway/scripts/bench/results"
)

func growth() Section {
	return Section{Name: "growth", What: "every step with 1 M and 10 M emails in the tables, compared with 10 k", Run: runGrowth}
}

// runGrowth measures every step with three numbers of emails in the tables, alternately: each size
// has a system of its own.
func runGrowth(ctx context.Context, r *environment.Environment, t *results.Table) (err error) {
	few := environment.Scale(r, 10_000, 1_000)
	sizes := environment.Scale(r, []int{1_000_000, 10_000_000}, []int{10_000, 100_000})
	n := environment.Scale(r, 20_000, 4_000)

	var grown []*gateway
	defer func() {
		for _, g := range grown {
			err = errors.Join(err, g.close(context.WithoutCancel(ctx)))
		}
	}()
	for _, size := range sizes {
		g, opening := openGateway(ctx, r, gatewayOptions{env: throughput()})
		if opening != nil {
			return opening
		}
		grown = append(grown, g)
		if err := g.grow(ctx, t, size); err != nil {
			return err
		}
	}
	for range t.Rounds() {
		small, err := smallRound(ctx, r, t, few, n)
		if err != nil {
			return err
		}
		for i, g := range grown {
			large, err := g.round(ctx, n)
			if err != nil {
				return err
			}
			recordGrowth(t, sizes[i], few, large, small)
		}
	}
	return nil
}

// smallRound runs a round on a new system: the emails of earlier rounds would soon be most of its
// rows.
func smallRound(ctx context.Context, r *environment.Environment, t *results.Table, size, n int) (result rates, err error) {
	g, err := openGateway(ctx, r, gatewayOptions{env: throughput()})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, g.close(context.WithoutCancel(ctx))) }()
	if err := g.grow(ctx, t, size); err != nil {
		return result, err
	}
	return g.round(ctx, n)
}

func recordGrowth(t *results.Table, size, few int, large, small rates) {
	for _, step := range []struct {
		name         string
		large, small float64
	}{
		{"accept", large.Accept, small.Accept},
		{"dispatch", large.Dispatch, small.Dispatch},
		{"send", large.Send, small.Send},
		{"whole way", large.Whole, small.Whole},
	} {
		t.Say("%s  %s emails/s at %d emails, %s at %d", step.name, results.Figure(step.large), size, results.Figure(step.small), few)
		t.RecordPair(
			results.Subject{Name: fmt.Sprintf("%s at %d emails in the tables", step.name, size), Unit: "emails/s"},
			results.Reference{Name: fmt.Sprintf("at %d", few), Budget: 0.8, Moonshot: 0.95},
			step.large, step.small,
		)
	}
}

// grow fills the tables with sent emails, copies of one that was really sent, and prints their
// size.
func (g *gateway) grow(ctx context.Context, t *results.Table, size int) error {
	started := time.Now()
	if err := g.environment.EmptyRedis(ctx); err != nil {
		return err
	}
	if err := g.start(ctx); err != nil {
		return err
	}
	taken := g.ses.Taken()
	model, err := g.tenant.post(ctx, g.serial.Add(1))
	if err == nil {
		err = g.awaitSent(ctx, taken, started, 1)
	}
	if err := errors.Join(err, g.stop(ctx)); err != nil {
		return err
	}
	if err := g.shorten(ctx, model); err != nil {
		return err
	}
	if err := withoutAutovacuum(ctx, g.environment, func() error {
		if err := history.Add(ctx, g.system.Database, model, size); err != nil {
			return err
		}
		return g.system.Vacuum(ctx)
	}); err != nil {
		return err
	}
	bytes, err := g.system.Count(ctx, `SELECT pg_database_size(current_database())`)
	if err != nil {
		return err
	}
	t.Say("%d emails in the tables, %.1f GB with their indexes, after %s", size, float64(bytes)/1e9, time.Since(started).Round(time.Second))
	return nil
}

// withoutAutovacuum turns off autovacuum, which would repeatedly process the tables while they are
// filled; work ends with a vacuum.
func withoutAutovacuum(ctx context.Context, r *environment.Environment, work func() error) error {
	set := func(ctx context.Context, statement string) error {
		for _, s := range []string{statement, "SELECT pg_reload_conf()"} {
			if _, err := r.Server.ExecContext(ctx, s); err != nil {
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

// shorten truncates the model's body to 200 bytes, so that ten million copies fit on a disk of some
// dozen gigabytes. The rows stay large enough: about 1.1 KB in the outbox, 400 bytes in the log,
// 600 in four events.
func (g *gateway) shorten(ctx context.Context, model uuid.UUID) error {
	return g.system.Exec(ctx, `UPDATE email_outbox SET html = left(html, 200) WHERE id = $1`, model)
}
