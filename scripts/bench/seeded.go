package bench

import (
	"context"
	"errors"
	"time"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/results"
	"email-gateway/shared/service"
)

// seededRate is the account's send rate, and thus the dispatcher's window: more than the worker
// sends, and low enough that the dispatcher takes emails until the end.
const seededRate = 5000

// seededTurn measures the rate at which a dispatcher and a worker send n emails of a new database, from the first eighth at
// SES until Postgres has the last email as SENT, and records the CPU time per email, in a row that begins with name. prepare
// may change the system before the programs start; end is called after the measurement.
func seededTurn(
	ctx context.Context, r *environment.Environment, t *results.Table, name string, n int, prepare func(*environment.System) (end func() error, err error),
) (rate float64, err error) {
	g, err := openGateway(ctx, r, gatewayOptions{rate: seededRate, env: map[string]string{"WORKER_CONCURRENCY": wholeConcurrency}})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, g.close(context.WithoutCancel(ctx))) }()
	started := time.Now()
	if err := g.system.Seed(ctx, n); err != nil {
		return 0, err
	}
	if err := g.system.Vacuum(ctx); err != nil {
		return 0, err
	}
	if prepare != nil {
		end, err := prepare(g.system)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	if err := g.start(ctx, "dispatcher", "worker"); err != nil {
		return 0, err
	}
	for g.ses.Taken() < int64(n/8) {
		if err := service.Pause(ctx, 2*time.Millisecond); err != nil {
			return 0, err
		}
	}
	m := environment.NewMeter([]*environment.Program{g.dispatcher, g.worker}, r.Postgres, r.Redis)
	if err := m.Start(); err != nil {
		return 0, err
	}
	first := g.ses.Taken()
	err = g.awaitSent(ctx, 0, started, n)
	if err := errors.Join(err, m.Stop()); err != nil {
		return 0, err
	}
	emails := n - int(first)
	t.Record(results.Quantity{Name: name + ": cpu per email, dispatcher, worker, Postgres, Redis", Unit: "µs"}, each(m.Spent, emails))
	return perSecond(emails, m.Length), nil
}
