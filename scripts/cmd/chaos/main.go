// Command chaos starts a gateway of its own, injects random faults into every component while
// emails and mailings are sent, and checks row by row that nothing was lost and that every
// duplicate was flagged. It exits with 0 only if that holds and the run reached its minimums: see
// package chaos.
//
//	chaos --duration 60s
//	chaos --duration 20m --seed 4711 --json chaos.json
//	chaos --duration 30s --only redis-flush,worker-kill
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"email-gateway/scripts/chaos"
	"email-gateway/scripts/chaos/fault"
	"email-gateway/scripts/local"
)

func main() { os.Exit(local.Main("chaos", run)) }

func run(ctx context.Context, out io.Writer, args []string) (ok bool, err error) {
	cfg := chaos.Config{Out: out}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.DurationVar(&cfg.Duration, "duration", time.Minute, "how long faults are injected")
	flags.DurationVar(&cfg.Settle, "settle", time.Minute, "time after that in which every email must reach its final state")
	flags.DurationVar(&cfg.Quiet, "quiet", 2*time.Minute, "further time in which the queue may deliver tasks of finished emails")
	flags.Uint64Var(&cfg.Seed, "seed", 0, "random seed; 0 chooses one and prints it")
	flags.StringVar(&cfg.Only, "only", "", "kinds of faults, separated by commas: "+strings.Join(fault.Names(fault.Kinds()), ", "))
	flags.Float64Var(&cfg.Rate, "rate", 190, "emails offered per second")
	flags.StringVar(&cfg.Overlay, "overlay", "", "overlay file for go build, relative to the checkout's root; scripts/chaos/nofence.json contains a bug that must be found")
	var place local.Workplace
	place.Flags(flags)
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if cfg.Duration < 5*time.Second || cfg.Settle < 0 || cfg.Quiet < 0 || cfg.Rate <= 0 {
		return false, errors.New("flags: duration must be at least 5s, settle and quiet not negative, rate positive")
	}
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64N(1_000_000) + 1
	}
	if err := place.Open("chaos"); err != nil {
		return false, err
	}
	cfg.Root, cfg.Dir = place.Root, place.Dir
	report, err := chaos.Run(ctx, cfg)
	if err != nil {
		return false, err
	}
	report.Print(out)
	if err := place.Write(report); err != nil {
		return false, err
	}
	if ok = report.OK(); ok {
		err = place.Remove()
	}
	return ok, err
}
