package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/results"
)

func scaleOut() Section {
	return Section{Name: "scale", What: "two and four workers compared with one, SES answering after 100 ms", Run: runScale}
}

// answerTime is SES's response time here, as over a network.
const answerTime = 100 * time.Millisecond

// runScale measures how the sending rate grows with the number of workers if their concurrency is
// the limit: each call mostly waits for SES. Where the CPU is the limit, as on one machine with a
// SES that responds immediately, more workers only share the CPU.
func runScale(ctx context.Context, r *environment.Environment, t *results.Table) (err error) {
	s := &sending{environment: r, table: t, concurrency: 25, portion: environment.Scale[int64](r, 3_000, 600)}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	more := []int{2, 4}
	if err := s.open(ctx, (t.Rounds()+1)*(1+len(more)), func([]byte) { <-time.After(answerTime) }); err != nil {
		return err
	}
	for range t.Rounds() {
		one, err := s.rateOf(ctx, 1)
		if err != nil {
			return err
		}
		for _, workers := range more {
			several, err := s.rateOf(ctx, workers)
			if err != nil {
				return err
			}
			t.Say("%d workers  %s emails/s, one %s", workers, results.Figure(several), results.Figure(one))
			t.RecordPair(
				results.Subject{Name: fmt.Sprintf("%d workers, concurrency %d each, SES answering after %s", workers, s.concurrency, answerTime), Unit: "emails/s"},
				results.Reference{Name: "one worker"}, several, one,
			)
		}
	}
	return nil
}

// rateOf measures the total rate of that number of workers.
func (s *sending) rateOf(ctx context.Context, workers int) (rate float64, err error) {
	err = s.with(ctx, workers, func([]*environment.Program) error {
		start := time.Now()
		emails, err := s.finish(ctx)
		rate = perSecond(int(emails), time.Since(start))
		return err
	})
	return rate, err
}
