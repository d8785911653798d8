package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/results"
	"email-gateway/shared/service"
)

func quota() Section {
	return Section{Name: "rate", What: "the account's rate with default settings: one and three workers, SES answering after 100 ms", Run: runQuota}
}

// account is an SES account with a rate and a response time, and the number of workers that send
// through it.
type account struct {
	perSecond int
	response  time.Duration
	workers   int
}

func (a account) String() string {
	workers := "one worker"
	if a.workers > 1 {
		workers = fmt.Sprintf("%d workers", a.workers)
	}
	return fmt.Sprintf("%d/s, SES answering after %s, %s", a.perSecond, a.response, workers)
}

// runQuota measures how much of the account's rate the gateway uses while emails wait, with default
// settings, and how many of its calls a provider with that rate would refuse.
func runQuota(ctx context.Context, r *environment.Environment, t *results.Table) error {
	accounts := []account{{500, 100 * time.Millisecond, 1}, {500, 100 * time.Millisecond, 3}, {14, 50 * time.Millisecond, 1}}
	for range t.Rounds() {
		for _, a := range accounts {
			if err := a.measure(ctx, r, t); err != nil {
				return fmt.Errorf("%s: %w", a, err)
			}
		}
	}
	return nil
}

// idleTime is the duration of the measurement of idle workers.
const idleTime = 10 * time.Second

// measure records one round. It excludes the first seconds, in which the workers find their limits.
func (a account) measure(ctx context.Context, r *environment.Environment, t *results.Table) (err error) {
	warmUp, seconds := environment.Scale(r, 10, 5), environment.Scale(r, 20, 6)
	// The provider's token bucket holds about one second of the rate.
	allowed := rate.NewLimiter(rate.Limit(a.perSecond), a.perSecond)
	var over atomic.Int64
	ses, err := environment.NewSES(float64(a.perSecond), func([]byte) {
		if !allowed.Allow() {
			over.Add(1)
		}
		<-time.After(a.response)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ses.Close()) }()
	s := &sending{environment: r, table: t, ses: ses}
	if s.system, err = r.NewSystem(ctx, map[string]string{"SES_ENDPOINT": ses.URL}); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, r.StopPrograms(context.WithoutCancel(ctx)), s.system.Close(context.WithoutCancel(ctx)))
	}()
	workers := make([]*environment.Program, a.workers)
	for i := range workers {
		if workers[i], err = s.system.Start(ctx, "worker", nil); err != nil {
			return err
		}
	}
	if err := a.idle(ctx, t, workers); err != nil {
		return err
	}
	if err := s.system.Seed(ctx, a.perSecond*(warmUp+seconds+5)); err != nil {
		return err
	}
	if err := s.system.Vacuum(ctx); err != nil {
		return err
	}
	if _, err := s.system.Start(ctx, "dispatcher", nil); err != nil {
		return err
	}
	if _, err := s.await(ctx, 1); err != nil {
		return err
	}
	if err := service.Pause(ctx, time.Duration(warmUp)*time.Second); err != nil {
		return err
	}
	first, start := ses.Taken(), time.Now()
	if err := service.Pause(ctx, time.Duration(seconds)*time.Second); err != nil {
		return err
	}
	sent := perSecond(int(ses.Taken()-first), time.Since(start))
	t.Say("%s: %s emails/s, %d calls over the rate", a, results.Figure(sent), over.Load())
	t.RecordPair(results.Subject{Name: a.String(), Unit: "emails/s"}, results.Reference{Name: "the account's rate", Budget: 0.95, Moonshot: 0.99}, sent, float64(a.perSecond))
	t.Record(results.Quantity{Name: a.String() + ": calls within the rate", Unit: "%", Budget: 99.9, AtLeast: true}, 100*(1-float64(over.Load())/float64(ses.Taken())))
	return nil
}

// idle records the CPU time of idle workers.
func (a account) idle(ctx context.Context, t *results.Table, workers []*environment.Program) error {
	m := environment.NewMeter(workers[:1])
	if err := service.Pause(ctx, time.Second); err != nil { // after their startup
		return err
	}
	if err := m.Start(); err != nil {
		return err
	}
	if err := service.Pause(ctx, idleTime); err != nil {
		return err
	}
	if err := m.Stop(); err != nil {
		return err
	}
	t.Record(results.Quantity{Name: fmt.Sprintf("an idle worker, %d in all", a.workers), Unit: "% of a core"}, 100*m.Spent[0].Seconds()/m.Length.Seconds())
	return nil
}
