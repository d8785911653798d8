package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/load"
	"email-gateway/scripts/bench/results"
)

func memory() Section {
	return Section{Name: "memory", What: "peak memory of each process at full load, and of the api with a CSV of 1 M rows", Run: runMemory}
}

// megabyte is the unit of budgets; settings limit processes in the other unit.
const (
	megabyte = 1e6
	mebibyte = 1 << 20
)

// runMemory measures the peak resident memory of each process after a batch at full speed, and the
// peak of the api after a large CSV, compared with a small one. Each measurement starts its own
// processes.
func runMemory(ctx context.Context, r *environment.Environment, t *results.Table) error {
	if err := loadMemory(ctx, r, t); err != nil {
		return err
	}
	return sheetMemory(ctx, r, t)
}

func loadMemory(ctx context.Context, r *environment.Environment, t *results.Table) (err error) {
	g, err := openGateway(ctx, r, gatewayOptions{env: throughput()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close(context.WithoutCancel(ctx))) }()
	n := environment.Scale(r, 20_000, 2_000)
	for range t.Rounds() {
		if err := g.start(ctx); err != nil {
			return err
		}
		if _, err := g.sendBatch(ctx, n); err != nil {
			return err
		}
		if err := g.recordPeaks(t, n); err != nil {
			return err
		}
		if err := g.stop(ctx); err != nil {
			return err
		}
	}
	return nil
}

// recordPeaks adds a value to the row of each process. Redis was not started for it: its peak is
// that since the start of the benchmark.
func (g *gateway) recordPeaks(t *results.Table, n int) error {
	for _, p := range []struct {
		*environment.Program
		budget, moonshot float64
	}{{g.api, 75, 50}, {g.dispatcher, 75, 50}, {g.worker, 150, 75}} {
		usage, err := p.Usage()
		if err != nil {
			return err
		}
		t.Say("%s: %s MB", p.Kind, results.Figure(float64(usage.Peak)/megabyte))
		t.Record(results.Quantity{
			Name: fmt.Sprintf("%s, after a batch of %d", p.Kind, n), Unit: "MB", Budget: p.budget, Moonshot: p.moonshot,
		}, float64(usage.Peak)/megabyte)
	}
	usage, err := g.environment.Redis.Usage()
	if err != nil {
		return err
	}
	t.Record(results.Quantity{Name: "redis, the most so far", Unit: "MB"}, float64(usage.Peak)/megabyte)
	return nil
}

// sheetMemory uploads a small CSV and a large one, each to a new api. It makes one round: the peaks
// of a process without other work hardly differ.
func sheetMemory(ctx context.Context, r *environment.Environment, t *results.Table) (err error) {
	const few = 1000
	many := environment.Scale(r, 1_000_000, 50_000)
	small, err := sheetPeak(ctx, r, few)
	if err != nil {
		return err
	}
	large, err := sheetPeak(ctx, r, many)
	if err != nil {
		return err
	}
	t.Say("api: %s MiB with a CSV of %d rows, %s MiB with one of %d", results.Figure(small), few, results.Figure(large), many)
	t.Record(results.Quantity{Name: fmt.Sprintf("api, CSV of %d rows", few), Unit: "MiB"}, small)
	t.Record(results.Quantity{Name: fmt.Sprintf("api, CSV of %d rows", many), Unit: "MiB"}, large)
	t.Record(results.Quantity{Name: fmt.Sprintf("api, added by a CSV of %d rows to that of %d", many, few), Unit: "MiB", Budget: 32, Moonshot: 16}, large-small)
	return nil
}

// sheetPeak returns the peak memory of an api after one CSV, in MiB.
func sheetPeak(ctx context.Context, r *environment.Environment, rows int) (peak float64, err error) {
	in := &ingesting{environment: r, rows: rows, sheet: filepath.Join(r.Dir(), fmt.Sprintf("sheet-%d.csv", rows))}
	defer func() { err = errors.Join(err, in.close(context.WithoutCancel(ctx))) }()
	if err := load.WriteSheet(in.sheet, rows); err != nil {
		return 0, err
	}
	if in.ours, err = r.NewSystem(ctx, nil); err != nil {
		return 0, err
	}
	if in.api, err = in.ours.Start(ctx, "api", nil); err != nil {
		return 0, err
	}
	if err := in.upload(ctx); err != nil {
		return 0, err
	}
	usage, err := in.api.Usage()
	return float64(usage.Peak) / mebibyte, err
}
