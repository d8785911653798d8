// Command neighbours starts a gateway of its own, lets one company misuse each resource that all
// companies share, and measures the requests and emails of another company meanwhile. It exits
// with 0 only if every limit was met, and prints the resources that missed one: see package
// neighbours.
//
//	neighbours
//	neighbours --only searches,priority-1 --json neighbours.json
//	neighbours --short
package main

import (
	"context"
	"flag"
	"io"
	"os"
	"strings"

	"email-gateway/scripts/local"
	"email-gateway/scripts/neighbours"
)

func main() { os.Exit(local.Main("neighbours", run)) }

func run(ctx context.Context, out io.Writer, args []string) (ok bool, err error) {
	cfg := neighbours.Config{Out: out}
	flags := flag.NewFlagSet("neighbours", flag.ContinueOnError)
	flags.StringVar(&cfg.Only, "only", "", "resources, separated by commas: "+strings.Join(neighbours.Names(), ", "))
	flags.BoolVar(&cfg.Short, "short", false, "four resources, smaller counts, 5 s for each")
	flags.DurationVar(&cfg.Measure, "measure", 0, "duration of each measurement; by default 20s, with -short 5s")
	var place local.Workplace
	place.Flags(flags)
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if err := place.Open("neighbours"); err != nil {
		return false, err
	}
	cfg.Root, cfg.Dir = place.Root, place.Dir
	report, err := neighbours.Run(ctx, cfg)
	if err != nil {
		return false, err
	}
	report.Print(out)
	if err := place.Write(report); err != nil {
		return false, err
	}
	if ok = len(report.Missed()) == 0; ok {
		err = place.Remove()
	}
	return ok, err
}
