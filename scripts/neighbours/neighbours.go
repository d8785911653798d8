// Package neighbours measures how much one company can delay another: it starts a gateway, lets one
// company misuse a shared resource, and measures the requests and emails of another company
// meanwhile. It does that for one resource after another. The program neighbours uses it, and its
// test.
package neighbours

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/local"
)

// Config describes a run.
type Config struct {
	// Only names resources, separated by commas; "" means all, or with Short those of the
	// short run.
	Only string
	// Short uses smaller counts and shorter measurements.
	Short bool
	// Measure is the duration of each measurement; 0 = 20 s, or 5 s with Short.
	Measure time.Duration
	// Root is the checkout, Dir a directory for data, programs and logs.
	Root, Dir string
	// Out receives progress messages.
	Out io.Writer
}

const (
	// sendRate is SES's limit in recipients per second: a rate that two cores reach while they also
	// run the servers and the load generator, so that emails wait for the window.
	sendRate = 100
	// concurrency is the worker's.
	concurrency = 32
)

func (c Config) measure() time.Duration {
	switch {
	case c.Measure > 0:
		return c.Measure
	case c.Short:
		return 5 * time.Second
	}
	return 20 * time.Second
}

// Run executes a run. An error means that something could not be measured; missed limits are in the
// report.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	chosen, err := choose(cfg.Only, cfg.Short)
	if err != nil {
		return report, err
	}
	fmt.Fprintln(cfg.Out, "building the programs, starting postgres, redis and rabbitmq")
	s, err := cluster.Open(ctx, cluster.Config{Root: cfg.Root, Dir: cfg.Dir, Single: true, SendRate: sendRate, Env: settings()})
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if report.Durability, err = local.Durability(ctx, s.Database, s.Redis.URL); err != nil {
		return report, err
	}
	fmt.Fprintln(cfg.Out, report.Durability)
	q, err := newQuiet(ctx, s)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	// The first measurement opens connections and fills caches.
	if _, err := q.measure(ctx, cfg.measure()/4, true); err != nil {
		return report, err
	}
	if report.Idle, err = q.measure(ctx, cfg.measure(), true); err != nil {
		return report, err
	}
	report.Window = window.Seconds()
	report.Idle.print(cfg.Out, "idle")
	for _, r := range chosen {
		row, err := measureResource(ctx, cfg, s, q, r, report.Idle)
		if err != nil {
			return report, fmt.Errorf("%s: %w", r.name, err)
		}
		report.Rows = append(report.Rows, row)
	}
	return report, nil
}

// window is the maximum time that an email waits on the queue because of others, by design: the dispatcher keeps at
// most 0.75 s of the send rate there besides the emails in flight, and the worker sends them at the send rate.
const window = 750 * time.Millisecond

// settings resets the settings that package cluster shortens for chaos runs to those of production.
func settings() map[string]string {
	env := map[string]string{
		"WORKER_CONCURRENCY": fmt.Sprint(concurrency), "SES_MAX_SEND_RATE": fmt.Sprint(sendRate), "LOG_LEVEL": "error",
		// The limits must hold without quotas, which would restrict the misuse.
		"QUOTA_SCHEDULED_EMAILS": "0", "QUOTA_EMAILS_PER_DAY": "0", "QUOTA_STORED_BODY_BYTES": "0", "QUOTA_RECIPIENTS": "0", "QUOTA_SUPPRESSIONS": "0",
		"QUOTA_STORED_FILE_BYTES": "0", "QUOTA_RUNNING_MAILINGS": "0", "QUOTA_MAILING_ROWS_PER_DAY": "0",
	}
	for _, name := range []string{
		"EMAIL_TTL", "EMAIL_BACKOFF", "RESCUE_AFTER", "MAILING_RECOVERY_INTERVAL", "MAILING_STALE_AFTER", "RECIPIENTS_RETRY_TTL_MS",
		"SES_CONFIGURATION_SET", "SES_FEEDBACK_WINDOW", "WEBHOOK_BACKOFF", "WEBHOOK_PROBE_INTERVAL",
	} {
		env[name] = ""
	}
	return env
}

func measureResource(ctx context.Context, cfg Config, s *cluster.Cluster, q *quiet, r resource, idle Measurement) (row Row, err error) {
	sc, err := newScenario(ctx, s, cfg, r)
	if err != nil {
		return row, err
	}
	seen, err := sc.run(ctx, q)
	if err != nil {
		return row, err
	}
	row = Row{Resource: r.name, What: r.what, Misuse: sc.counts(), Windows: max(r.windows, 1), Backoff: milliseconds(r.backoff), Deliveries: r.deliveries, Seen: seen}
	row.evaluate(idle)
	row.print(cfg.Out)
	return row, nil
}
