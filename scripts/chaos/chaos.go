// Package chaos injects faults into a whole gateway and checks that it keeps its promises: it
// starts a gateway of its own, submits emails, recipients and mailings as tenants do, kills,
// freezes, disconnects and fills components by a plan generated from a seed, waits until the
// gateway is idle and compares every row with what SES received. It is used by the program chaos
// and its tests.
package chaos

import (
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"time"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/fault"
	"email-gateway/scripts/local"
)

// Config describes a run.
type Config struct {
	// Duration is how long faults are injected, after a calibration without faults.
	Duration time.Duration
	// Settle is how long after Duration every email must have a final state.
	Settle time.Duration
	// Quiet is how much longer the queue may deliver tasks of finished emails: the tasks of a
	// killed worker are delivered again after fault.QueueLeftover, and the fence must reject them.
	Quiet time.Duration
	// Seed determines the plan of faults and the emails.
	Seed uint64
	// Only lists kinds of faults, separated by commas; "" means all.
	Only string
	// Rate is how many emails are offered per second.
	Rate float64
	// Overlay is passed to go build -overlay for the programs: it replaces source files.
	Overlay string
	// Root is the checkout, Dir a directory for data, programs and logs.
	Root, Dir string
	// Out receives progress messages.
	Out io.Writer
}

// settleTime is the time that the plan leaves for recovery from its last faults.
const settleTime = time.Minute

// Run executes a run. An error means that there is no result; broken promises are in the report.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	kinds, err := fault.Only(cfg.Only)
	if err != nil {
		return Report{}, err
	}
	minimum := minimumOf(cfg.Duration, kinds)
	plan := fault.Plan(fault.Scope{
		Seed: cfg.Seed, Duration: cfg.Duration, Settle: settleTime,
		Faults: int(math.Ceil(1.5 * float64(minimum.Faults))), Kills: int(math.Ceil(1.2 * float64(minimum.Kills))),
	}, kinds)
	report = Report{
		Seed: cfg.Seed, Duration: cfg.Duration.Seconds(), Only: cfg.Only, Overlay: cfg.Overlay, Minimum: minimum,
		Logs: filepath.Join(cfg.Dir, "log"),
	}
	fmt.Fprintf(cfg.Out, "seed %d, %s, %d faults planned\n", cfg.Seed, cfg.Duration, len(plan))

	c, err := cluster.Open(ctx, cluster.Config{Root: cfg.Root, Dir: cfg.Dir, Overlay: cfg.Overlay})
	if err != nil {
		return report, err
	}
	defer func() {
		if closing := c.Close(); err == nil {
			err = closing
		}
	}()
	if report.Durability, err = local.Durability(ctx, c.Database, c.Redis.URL); err != nil {
		return report, err
	}
	fmt.Fprintln(cfg.Out, report.Durability)
	r := &run{cfg: cfg, gateway: c, report: report}
	err = r.execute(ctx, plan)
	return r.report, err
}
