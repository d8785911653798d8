// Package bench measures how fast the gateway is, each path beside the reference that it
// is compared with, in the same run on the same servers: the two take turns (A B A B), so
// that what the machine does to one it does to the other. The gateway is always its real
// programs with everything on. It is used by the program bench and its tests.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Config says what to run.
type Config struct {
	// Sections are run in this order; at least one.
	Sections []Section
	// Rounds is how often each measurement is made.
	Rounds int
	// Quick makes everything smaller and shorter, for trying: its figures mean little.
	Quick bool
	// Root is the checkout, Dir a directory for data, programs and logs.
	Root, Dir string
	// Profiles is a directory into which the programs write profiles of their processor
	// time, of each measurement that tells processor times; "" = they write none.
	Profiles string
	// Out is told what happens while it happens.
	Out io.Writer
}

// Section measures one path.
type Section struct {
	Name string
	What string // in a few words, for --list
	Run  func(ctx context.Context, r *Rig, t *Table) error
}

// Sections are all there are, in the order in which they are run.
func Sections() []Section {
	return slices.Concat([]Section{accept(), dispatch(), send(), ingest(), whole(), mailing(), latency(), quiet(), scaleOut(), quota()},
		tenants(), []Section{growth(), memory()})
}

// Only picks sections by their names, separated by commas; "" means all. The part of a name before a colon picks all sections
// that share it.
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

// Run runs the sections on a rig of its own. An error means that something could not be
// measured; what was measured until then is in the report. A budget that is missed is no
// error: see Report.Missed.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	if len(cfg.Sections) == 0 {
		return Report{}, errors.New("there is no section to run")
	}
	report.Quick, report.Rounds = cfg.Quick, cfg.Rounds
	rig, err := openRig(ctx, cfg)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	if report.Durability, err = rig.durability(ctx); err != nil {
		return report, err
	}
	fmt.Fprintln(cfg.Out, report.Durability)
	for _, section := range cfg.Sections {
		begun := time.Now()
		table := &Table{section: section.Name, rounds: cfg.Rounds, out: cfg.Out}
		running := section.Run(ctx, rig, table)
		report.Rows = append(report.Rows, table.finished()...)
		running = errors.Join(running, rig.stopPrograms(context.WithoutCancel(ctx)))
		if running != nil {
			return report, fmt.Errorf("section %s: %w", section.Name, running)
		}
		fmt.Fprintf(cfg.Out, "%s done after %s\n", section.Name, time.Since(begun).Round(time.Second))
	}
	return report, nil
}
