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

	"email-gateway/scripts/chaos/checker"
	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/fault"
	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/chaos/monitor"
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
	return execute(ctx, cfg, c, plan, report)
}

// execute generates load and injects faults, waits until the gateway is idle, and checks consistency.
func execute(ctx context.Context, cfg Config, gateway *cluster.Cluster, plan []fault.Step, report Report) (Report, error) {
	var keys []string
	for _, company := range cluster.Companies() {
		key, err := gateway.Key(ctx, company, cluster.Sender(company))
		if err != nil {
			return report, err
		}
		keys = append(keys, key)
	}
	quiet, err := gateway.Key(ctx, cluster.QuietCompany, cluster.Sender(cluster.QuietCompany))
	if err != nil {
		return report, err
	}
	for i, company := range append(cluster.Companies(), cluster.QuietCompany) {
		if err := gateway.CreateWebhooks(ctx, company, append(keys, quiet)[i]); err != nil {
			return report, err
		}
	}
	l := load.New(load.Params{
		APIs: gateway.APIs(), Keys: keys, QuietKey: quiet, Seed: cfg.Seed, Rate: cfg.Rate, Lead: calibration, Duration: calibration + cfg.Duration, RetryTimeout: cfg.Settle,
		Sent: gateway.Mail.Accepted,
		Erase: func(ctx context.Context, tenant int, address string) error {
			return gateway.Erase(ctx, cluster.Companies()[tenant], address)
		},
		Mailings: report.Minimum.Mailings,
	})
	m, err := monitor.Start(ctx, gateway, l.Ledger, cfg.Out)
	if err != nil {
		return report, err
	}
	defer m.Stop()
	injected := make(chan fault.Result, 1)
	go func() {
		rate, _ := calibrate(ctx, gateway, l.Ledger) // its error is the end of ctx
		fmt.Fprintf(cfg.Out, "calibrated %.0f emails/s\n", rate)
		report.Calibrated = rate
		l.Pace(rate)
		injected <- fault.NewRunner(gateway, cfg.Out).Run(ctx, plan)
	}()
	start := time.Now().Add(calibration) // of the faults
	stopFollowing := follow(ctx, l)
	stopDisturbing := disturb(ctx, gateway, cfg.Seed)
	l.Run(ctx)
	result := <-injected
	stopDisturbing()
	if ctx.Err() != nil {
		return report, ctx.Err()
	}
	records := l.Ledger.Records()
	end := start.Add(cfg.Duration)
	outage := fault.Outage(result.Injected, start, end)
	report.Outage = outage.Seconds()
	report.Minimum = report.Minimum.onMachine(report.Calibrated, calibration+cfg.Duration, outage)
	late := max(0, result.Healed-cfg.Duration-settleTime)
	settler := newSettler(gateway, l, records, end, cfg.Out)
	settled := settler.settle(ctx, cfg.Settle+late)
	emptied := settler.quiet(ctx, cfg.Settle+late+cfg.Quiet)
	delivered := settler.delivered(ctx, cfg.Settle+late+cfg.Quiet+deliveryTime)
	feeds := checker.Feeds{Again: l.ReadFeeds(ctx)}
	feeds.Followed = stopFollowing(feeds.Again)
	m.Stop()

	c := checker.New(gateway, records, result.Injected)
	settler.addFindings(c, settled, emptied, delivered)
	m.Report(c)
	if err := c.CheckFeeds(ctx, feeds); err != nil {
		return report, err
	}
	findings, err := c.Check(ctx)
	if err != nil {
		return report, err
	}
	report.fill(gateway, records, result, c.Counts, findings)
	report.Late = late.Seconds()
	report.Settled, report.Quiet, report.Delivered, report.Seen = settled.Seconds(), emptied.Seconds(), delivered.Seconds(), m.Seen
	report.Below = m.Below(len(records.Mailings))
	report.compareWithMinimum(result)
	if cfg.Duration >= longRun && !report.Seen.Window.Spare() {
		report.Below = append(report.Below, "more than 90 % of the window's limit was used")
	}
	return report, nil
}
