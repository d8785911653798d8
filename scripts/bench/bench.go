// Package bench is the benchmark of the gateway. It measures each path and its reference in the
// same run on the same servers, alternately (A B A B), so that disturbances of the machine affect
// both. It always uses the gateway's real programs with all features on. It is used by the program
// bench and its tests.
//
// This package has the sections, each of which measures one path. Package environment runs the servers
// and programs, load sends requests, reference and peer do without the gateway what it is compared with,
// history fills its tables, and results has the figures.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/results"
)

// Config describes a run.
type Config struct {
	// Sections are run in this order; at least one.
	Sections []Section
	// Rounds is the number of repetitions of each measurement.
	Rounds int
	// Quick makes everything smaller and shorter, for a trial: its figures are not meaningful.
	Quick bool
	// Root is the checkout, Dir a directory for data, programs and logs.
	Root, Dir string
	// Profiles is a directory into which the programs write CPU profiles of each measurement of CPU
	// time; "" = no profiles.
	Profiles string
	// Out receives progress messages.
	Out io.Writer
}

// Section measures one path.
type Section struct {
	Name string
	What string // description for --list
	Run  func(ctx context.Context, r *environment.Environment, t *results.Table) error
}

// Sections returns all sections in the order of a run.
func Sections() []Section {
	return slices.Concat([]Section{accept(), dispatch(), send(), ingest(), whole(), mailing(), latency(), quiet(), scaleOut(), quota(), feed()},
		tenants(), []Section{growth(), memory()})
}

// Only returns sections by name, separated by commas; "" means all. The part of a name before a
// colon selects all sections with that prefix.
func Only(names string) ([]Section, error) {
	all := Sections()
	if names == "" {
		return all, nil
	}
	var picked []Section
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		before := len(picked)
		for _, s := range all {
			if family, _, _ := strings.Cut(s.Name, ":"); name == s.Name || name == family {
				picked = append(picked, s)
			}
		}
		if len(picked) == before {
			return nil, fmt.Errorf("section: there is no %q", name)
		}
	}
	return picked, nil
}

// Run runs the sections in a new environment. An error means that something could not be measured;
// the report contains the measurements up to then. A missed budget is no error: see Report.Missed.
func Run(ctx context.Context, cfg Config) (report results.Report, err error) {
	if len(cfg.Sections) == 0 {
		return results.Report{}, errors.New("no sections selected")
	}
	report.Quick, report.Rounds = cfg.Quick, cfg.Rounds
	env, err := environment.Open(ctx, environment.Config{Quick: cfg.Quick, Root: cfg.Root, Dir: cfg.Dir, Profiles: cfg.Profiles, Out: cfg.Out})
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, env.Close()) }()
	if report.Durability, err = env.Durability(ctx); err != nil {
		return report, err
	}
	fmt.Fprintln(cfg.Out, report.Durability)
	for _, section := range cfg.Sections {
		start := time.Now()
		table := results.NewTable(section.Name, cfg.Rounds, cfg.Out)
		running := section.Run(ctx, env, table)
		report.Rows = append(report.Rows, table.Finished()...)
		running = errors.Join(running, env.StopPrograms(context.WithoutCancel(ctx)))
		if running != nil {
			return report, fmt.Errorf("section %s: %w", section.Name, running)
		}
		fmt.Fprintf(cfg.Out, "%s done after %s\n", section.Name, time.Since(start).Round(time.Second))
	}
	return report, nil
}
