package chaos

import (
	"context"
	"fmt"
	"time"

	"email-gateway/scripts/chaos/checker"
	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/fault"
	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/chaos/monitor"
)

// run is a chaos run on a cluster.
type run struct {
	cfg     Config
	gateway *cluster.Cluster
	report  Report
}

// execute generates load and injects the plan's faults, waits until the gateway is idle, and checks consistency.
func (r *run) execute(ctx context.Context, plan []fault.Step) error {
	l, err := r.prepareLoad(ctx)
	if err != nil {
		return err
	}
	m, err := monitor.Start(ctx, r.gateway, l.Ledger, r.cfg.Out)
	if err != nil {
		return err
	}
	defer m.Stop()
	start := time.Now().Add(calibration) // of the faults
	stopFollowing := follow(ctx, l)
	injected := r.inject(ctx, l, plan)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	end := start.Add(r.cfg.Duration)
	outage := fault.Outage(injected.Injected, start, end)
	r.report.Outage = outage.Seconds()
	r.report.Minimum = r.report.Minimum.onMachine(r.report.Calibrated, calibration+r.cfg.Duration, outage)
	return r.settleAndCheck(ctx, l, m, injected, end, stopFollowing)
}

// prepareLoad creates the companies' keys and webhook endpoints, and the load that uses them.
func (r *run) prepareLoad(ctx context.Context) (*load.Load, error) {
	companies := append(cluster.Companies(), cluster.QuietCompany)
	keys := make([]string, len(companies))
	for i, company := range companies {
		var err error
		if keys[i], err = r.gateway.Key(ctx, company, cluster.Sender(company)); err != nil {
			return nil, err
		}
	}
	for i, company := range companies {
		if err := r.gateway.CreateWebhooks(ctx, company, keys[i]); err != nil {
			return nil, err
		}
	}
	last := len(keys) - 1
	return load.New(load.Params{
		APIs: r.gateway.APIs(), Keys: keys[:last:last], QuietKey: keys[last], Seed: r.cfg.Seed, Rate: r.cfg.Rate,
		Lead: calibration, Duration: calibration + r.cfg.Duration, RetryTimeout: r.cfg.Settle,
		Sent: r.gateway.Mail.Accepted,
		Erase: func(ctx context.Context, tenant int, address string) error {
			return r.gateway.Erase(ctx, cluster.Companies()[tenant], address)
		},
		Mailings: r.report.Minimum.Mailings,
	}), nil
}

// inject runs the load, and beside it, when the load has been calibrated, the plan's faults. It returns when both have ended.
func (r *run) inject(ctx context.Context, l *load.Load, plan []fault.Step) fault.Result {
	injected := make(chan fault.Result, 1)
	go func() {
		rate, _ := calibrate(ctx, r.gateway, l.Ledger) // its error is the end of ctx
		fmt.Fprintf(r.cfg.Out, "calibrated %.0f emails/s\n", rate)
		r.report.Calibrated = rate
		l.Pace(rate)
		injected <- fault.NewRunner(r.gateway, r.cfg.Out).Run(ctx, plan)
	}()
	stopDisturbing := disturb(ctx, r.gateway, r.cfg.Seed)
	defer stopDisturbing()
	l.Run(ctx)
	return <-injected
}

// settleAndCheck waits until the gateway is idle and all webhooks are delivered, and writes what the checks find into the
// report.
func (r *run) settleAndCheck(
	ctx context.Context, l *load.Load, m *monitor.Monitor, injected fault.Result, end time.Time,
	stopFollowing func(others []load.Feed) []load.Feed,
) error {
	records := l.Ledger.Records()
	late := max(0, injected.Healed-r.cfg.Duration-settleTime)
	settler := newSettler(r.gateway, l, records, end, r.cfg.Out)
	settled := settler.settle(ctx, r.cfg.Settle+late)
	emptied := settler.quiet(ctx, r.cfg.Settle+late+r.cfg.Quiet)
	delivered := settler.delivered(ctx, r.cfg.Settle+late+r.cfg.Quiet+deliveryTime)
	feeds := checker.Feeds{Again: l.ReadFeeds(ctx)}
	feeds.Followed = stopFollowing(feeds.Again)
	m.Stop()

	c := checker.New(r.gateway, records, injected.Injected)
	settler.addFindings(c.Findings, settled, emptied, delivered)
	m.Report(c)
	if err := c.CheckFeeds(ctx, feeds); err != nil {
		return err
	}
	findings, err := c.Check(ctx)
	if err != nil {
		return err
	}
	r.report.fill(r.gateway, records, injected, c.Counts, findings)
	r.report.Late = late.Seconds()
	r.report.Settled, r.report.Quiet, r.report.Delivered, r.report.Seen = settled.Seconds(), emptied.Seconds(), delivered.Seconds(), m.Seen
	r.report.Below = m.Below(len(records.Mailings))
	r.report.compareWithMinimum(injected)
	if r.cfg.Duration >= longRun && !r.report.Seen.Window.Spare() {
		r.report.Below = append(r.report.Below, "more than 90 % of the window's limit was used")
	}
	return nil
}
