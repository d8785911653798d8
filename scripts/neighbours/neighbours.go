// Package neighbours measures what one company can do to another: it starts a gateway, lets one
// company misuse a shared resource, and measures the requests and emails of another company
// meanwhile. It does that for one resource after another. The program neighbours uses it, and
// its test.
package neighbours

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"email-gateway/scripts/chaos/stage"
	"email-gateway/scripts/local"
)

// Config says what to run.
type Config struct {
	// Only names resources, separated by commas; "" means all, or with Short those of the
	// short run.
	Only string
	// Short misuses less, for less long.
	Short bool
	// Measure is how long each measurement lasts; 0 = 20 s, or 5 s with Short.
	Measure time.Duration
	// Tries is how often a resource is measured that missed a limit: the last measurement
	// counts. More than 1 is for machines that do other work.
	Tries int
	// Root is the checkout, Dir a directory for data, programs and logs.
	Root, Dir string
	// Out gets the progress.
	Out io.Writer
}

const (
	// sendRate is what SES allows, in recipients per second: a rate that two cores reach while
	// they run the servers and the load as well, so that the window is what emails wait for.
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

// Run runs it. An error means that something could not be measured; a limit that is missed is
// in the report.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	chosen, err := choose(cfg.Only, cfg.Short)
	if err != nil {
		return report, err
	}
	fmt.Fprintln(cfg.Out, "building the programs, starting postgres, redis and rabbitmq")
	s, err := stage.Open(ctx, stage.Config{Root: cfg.Root, Dir: cfg.Dir, Single: true, SendRate: sendRate, Env: settings()})
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
	defer q.close()
	// The first measurement opens connections and fills caches.
	if _, err := q.measure(ctx, cfg.measure()/4, true); err != nil {
		return report, err
	}
	if report.Idle, err = q.measure(ctx, cfg.measure(), true); err != nil {
		return report, err
	}
	report.Window, report.Percent = window().Seconds(), cfg.percent()
	report.Idle.print(cfg.Out, "idle")
	for _, r := range chosen {
		row, err := tryResource(ctx, cfg, s, q, r, report.Idle)
		if err != nil {
			return report, fmt.Errorf("%s: %w", r.name, err)
		}
		report.Rows = append(report.Rows, row)
	}
	return report, nil
}

// window is how long an email may wait at most because of others, by the design: the dispatcher
// keeps at most max(2 × concurrency, 1 s × send rate) tasks on a queue, and the worker sends them
// at the send rate.
func window() time.Duration {
	return max(2*concurrency, sendRate) * time.Second / sendRate
}

// settings are those of production, but for what the stage shortens for chaos runs.
func settings() map[string]string {
	env := map[string]string{
		"WORKER_CONCURRENCY": fmt.Sprint(concurrency), "SES_MAX_SEND_RATE": fmt.Sprint(sendRate), "LOG_LEVEL": "error",
		"PUBLIC_URL": "https://mail.vizinha.example",
		// What is measured must hold where no quota keeps a company from misusing what is shared.
		"QUOTA_SCHEDULED_EMAILS": "0", "QUOTA_EMAILS_PER_DAY": "0", "QUOTA_STORED_BODY_BYTES": "0", "QUOTA_RECIPIENTS": "0", "QUOTA_SUPPRESSIONS": "0",
		"QUOTA_STORED_FILE_BYTES": "0", "QUOTA_RUNNING_MAILINGS": "0", "QUOTA_MAILING_ROWS_PER_DAY": "0",
	}
	for _, name := range []string{
		"EMAIL_TTL", "EMAIL_BACKOFF", "RESCUE_AFTER", "MAILING_RECOVERY_INTERVAL", "MAILING_STALE_AFTER", "RECIPIENTS_RETRY_TTL_MS",
		"SES_CONFIGURATION_SET", "SES_FEEDBACK_WINDOW",
	} {
		env[name] = ""
	}
	return env
}

// tryResource measures one resource, again while it misses a limit and there are tries left.
func tryResource(ctx context.Context, cfg Config, s *stage.Stage, q *quiet, r resource, idle Measurement) (row Row, err error) {
	for try := 1; ; try++ {
		sc, err := newScene(ctx, s, cfg, r, try)
		if err != nil {
			return row, err
		}
		seen, err := sc.play(ctx, q)
		if err != nil {
			return row, err
		}
		row = Row{Resource: r.name, What: r.what, Misuse: sc.counts(), Windows: max(r.windows, 1), Backoff: milliseconds(r.backoff), Seen: seen}
		row.judge(idle, cfg.percent())
		row.print(cfg.Out)
		if row.OK() || try >= cfg.Tries {
			return row, nil
		}
	}
}
