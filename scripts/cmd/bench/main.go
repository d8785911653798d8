// Command bench measures the speed of the gateway, each path together with its reference in the
// same run: see package bench. It exits with 0 only if every budget is met.
//
//	bench
//	bench --section accept,ingest --json bench.json
//	bench --quick --rounds 2
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"email-gateway/scripts/bench"
	"email-gateway/scripts/local"
)

func main() { os.Exit(local.Main("bench", run)) }

// run returns whether every budget was met.
func run(ctx context.Context, out io.Writer, args []string) (ok bool, err error) {
	cfg := bench.Config{Out: out}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	sections := flags.String("section", "", "sections to run, separated by commas; by default all")
	list := flags.Bool("list", false, "list the sections and exit")
	flags.IntVar(&cfg.Rounds, "rounds", 5, "number of repetitions of each measurement")
	flags.BoolVar(&cfg.Quick, "quick", false, "smaller and shorter, for a trial: the figures are not meaningful")
	flags.StringVar(&cfg.Profiles, "profiles", "", "a directory for CPU profiles of the programs, which go tool pprof reads")
	var place local.Workplace
	place.Flags(flags)
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if *list {
		for _, s := range bench.Sections() {
			fmt.Fprintf(out, "%-17s %s\n", s.Name, s.What)
		}
		return true, nil
	}
	if cfg.Rounds < 1 {
		return false, errors.New("flags: rounds must be at least 1")
	}
	if cfg.Sections, err = bench.Only(*sections); err != nil {
		return false, fmt.Errorf("flags: %w", err)
	}
	if err := place.Open("bench"); err != nil {
		return false, err
	}
	cfg.Root, cfg.Dir = place.Root, place.Dir
	if cfg.Profiles, err = directory(cfg.Profiles); err != nil {
		return false, err
	}
	report, err := bench.Run(ctx, cfg)
	report.Print(out) // also after an error: the measurements up to then are useful
	if err != nil {
		err = fmt.Errorf("%w; data and logs are in %s", err, cfg.Dir)
	}
	err = errors.Join(err, place.Write(report))
	if err == nil {
		err = place.Remove()
	}
	missed := report.Missed()
	for _, row := range missed {
		fmt.Fprintf(out, "MISSED %s: %s\n", row.Section, row.Name)
	}
	return len(missed) == 0 && err == nil, err
}

// directory creates the directory, unless its name is empty, and returns its absolute path for
// programs with another working directory.
func directory(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	name, err := filepath.Abs(name)
	if err != nil {
		return "", fmt.Errorf("create a directory: %w", err)
	}
	if err := os.MkdirAll(name, 0o700); err != nil {
		return "", fmt.Errorf("create a directory: %w", err)
	}
	return name, nil
}
