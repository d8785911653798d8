// Package chaos breaks a whole gateway on purpose and checks that it keeps its promises:
// it starts one of its own, lets tenants hand over emails, recipients and mailings, has
// everything killed, frozen, cut and filled by a plan that is drawn from a seed, lets
// things settle and compares every row with what SES got. It is used by the program
// chaos and its tests.
package chaos

import (
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"time"

	"email-gateway/scripts/chaos/fault"
	"email-gateway/scripts/chaos/judge"
	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/chaos/stage"
	"email-gateway/scripts/chaos/watch"
	"email-gateway/scripts/local"
)

// Config says what to run.
type Config struct {
	// Duration is how long faults are injected, after a calibration without faults.
	Duration time.Duration
	// Settle is how long after Duration every email must have come to its end.
	Settle time.Duration
	// Quiet is how much longer the queue may deliver what is done: the tasks of a worker
	// that was killed come again fault.QueueLeftover later, and must find the fence.
	Quiet time.Duration
	// Seed decides the plan, and what is sent.
	Seed uint64
	// Only names kinds of faults, separated by commas; "" means all.
	Only string
	// Rate is how many emails are offered per second.
	Rate float64
	// Overlay is for go build when it builds the programs: files that take the place of others.
	Overlay string
	// Root is the checkout, Dir a directory for data, programs and logs.
	Root, Dir string
	// Out is told what happens while it happens.
	Out io.Writer
}

// settleTime is what the plan leaves for the traces of its last faults to disappear.
const settleTime = time.Minute

// Run runs it. An error means that nothing was found out; a broken promise stands in the
// report.
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

	s, err := stage.Open(ctx, stage.Config{Root: cfg.Root, Dir: cfg.Dir, Overlay: cfg.Overlay})
	if err != nil {
		return report, err
	}
	defer func() {
		if closing := s.Close(); err == nil {
			err = closing
		}
	}()
	if report.Durability, err = local.Durability(ctx, s.Database, s.Redis.URL); err != nil {
		return report, err
	}
	fmt.Fprintln(cfg.Out, report.Durability)
	return play(ctx, cfg, s, plan, report)
}

// play lets load and faults run, waits for rest, and judges.
func play(ctx context.Context, cfg Config, s *stage.Stage, plan []fault.Step, report Report) (Report, error) {
	var keys []string
	for i, company := range stage.Companies() {
		key, err := s.Key(ctx, company, fmt.Sprintf("Caos <aviso@caos%d.example>", i+1))
		if err != nil {
			return report, err
		}
		keys = append(keys, key)
	}
	quiet, err := s.Key(ctx, stage.QuietCompany, "Quieta <aviso@quieta.example>")
	if err != nil {
		return report, err
	}
	l := load.New(load.Params{
		APIs: s.APIs(), Keys: keys, QuietKey: quiet, Seed: cfg.Seed, Rate: cfg.Rate, Lead: calibration, Duration: calibration + cfg.Duration, Patience: cfg.Settle,
		Sent: s.Mail.Taken,
		Erase: func(ctx context.Context, tenant int, address string) error {
			return s.Erase(ctx, stage.Companies()[tenant], address)
		},
		Mailings: report.Minimum.Mailings,
	})
	w, err := watch.Start(ctx, s, l.Book, cfg.Out)
	if err != nil {
		return report, err
	}
	defer w.Stop()
	played := make(chan fault.Done, 1)
	go func() {
		rate, _ := calibrate(ctx, s, l.Book) // its error is the end of ctx
		fmt.Fprintf(cfg.Out, "calibrated %.0f emails/s\n", rate)
		report.Calibrated = rate
		l.Pace(rate)
		played <- fault.NewPlayer(s, cfg.Out).Play(ctx, plan)
	}()
	begun := time.Now().Add(calibration) // of the faults
	l.Run(ctx)
	done := <-played
	if ctx.Err() != nil {
		return report, ctx.Err()
	}
	notes := l.Book.Notes()
	end := begun.Add(cfg.Duration)
	outage := fault.Outage(done.Played, begun, end)
	report.Outage = outage.Seconds()
	report.Minimum = report.Minimum.onMachine(report.Calibrated, calibration+cfg.Duration, outage)
	late := max(0, done.Healed-cfg.Duration-settleTime)
	rest := newRest(s, l, notes, end, cfg.Out)
	settled := rest.settle(ctx, cfg.Settle+late)
	emptied := rest.quiet(ctx, cfg.Settle+late+cfg.Quiet)
	w.Stop()

	j := judge.New(s, notes, done.Played)
	rest.tell(j, settled, emptied)
	w.Tell(j)
	findings, err := j.Try(ctx)
	if err != nil {
		return report, err
	}
	report.fill(s, notes, done, j.Counts, findings)
	report.Late = late.Seconds()
	report.Settled, report.Quiet, report.Seen = settled.Seconds(), emptied.Seconds(), w.Seen
	report.Below = w.Below(len(notes.Mailings))
	report.judge(done)
	if cfg.Duration >= longRun && !report.Seen.Window.Spare() {
		report.Below = append(report.Below, "less than 10 % of the window's limit was to spare")
	}
	return report, nil
}
