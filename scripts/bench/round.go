package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"email-gateway/scripts/bench/environment"
	"email-gateway/shared/service"
)

// rates are a gateway's rates in emails per second in each step alone, and end to end.
type rates struct{ Accept, Dispatch, Send, Whole float64 }

// round measures each step with n emails: the api alone accepts them, the dispatcher queues them, the
// worker sends them; then all three concurrently, with n more. It starts and stops the programs.
func (g *gateway) round(ctx context.Context, n int) (r rates, err error) {
	if err := g.environment.EmptyRedis(ctx); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, g.stop(context.WithoutCancel(ctx))) }()
	if err := g.start(ctx); err != nil {
		return r, err
	}
	if err := g.warmUp(ctx); err != nil {
		return r, err
	}
	if err := g.stop(ctx, "dispatcher", "worker"); err != nil {
		return r, err
	}
	if err := g.system.Checkpoint(ctx); err != nil {
		return r, err
	}
	taken, started := g.ses.Taken(), time.Now()
	emails, err := g.tenant.postBatch(ctx, n)
	if err != nil {
		return r, err
	}
	r.Accept = perSecond(emails, time.Since(started))
	if r.Dispatch, err = g.dispatchAll(ctx, emails); err != nil {
		return r, err
	}
	if r.Send, err = g.sendAll(ctx, taken, started, emails); err != nil {
		return r, err
	}
	if err := g.system.Checkpoint(ctx); err != nil {
		return r, err
	}
	b, err := g.sendBatch(ctx, n)
	r.Whole = perSecond(b.emails, b.sent)
	return r, err
}

// dispatchAll starts the dispatcher while the lanes are held, releases them, and returns how many
// emails per second it queued, from the first eighth until all were queued.
func (g *gateway) dispatchAll(ctx context.Context, emails int) (rate float64, err error) {
	client, err := g.environment.RedisClient()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := g.system.Exec(ctx, `UPDATE dispatch_lanes SET held_at = now(), held_reason = 'bench'`); err != nil {
		return 0, err
	}
	if err := g.start(ctx, "dispatcher"); err != nil {
		return 0, err
	}
	if err := g.system.Exec(ctx, `UPDATE dispatch_lanes SET held_at = NULL, held_reason = NULL`); err != nil {
		return 0, err
	}
	first, err := awaitTasks(ctx, client, int64(emails)/8)
	if err != nil {
		return 0, err
	}
	started := time.Now()
	last, err := awaitTasks(ctx, client, int64(emails))
	return perSecond(int(last-first), time.Since(started)), err
}

// sendAll starts the worker with a full queue and returns how many emails per second it sent, from
// the first one at SES until Postgres has the last one as SENT.
func (g *gateway) sendAll(ctx context.Context, taken int64, accepted time.Time, emails int) (float64, error) {
	started := make(chan error, 1)
	go func() { started <- g.start(ctx, "worker") }()
	waiting, cancel := context.WithTimeoutCause(ctx, sendTimeout, fmt.Errorf("no email was sent within %s", sendTimeout))
	defer cancel()
	for g.ses.Taken() == taken {
		if err := service.Pause(waiting, time.Millisecond); err != nil {
			return 0, errors.Join(err, <-started)
		}
		select {
		case err := <-started:
			if err != nil {
				return 0, err
			}
			started <- nil // for the receive below
		default:
		}
	}
	before, begun := g.ses.Taken()-taken, time.Now()
	err := g.awaitSent(ctx, taken, accepted, emails)
	return perSecond(emails-int(before), time.Since(begun)), errors.Join(err, <-started)
}

func perSecond(n int, took time.Duration) float64 { return float64(n) / took.Seconds() }

// throughput is the environment for throughput measurements: enough emails in flight, and a
// dispatcher that fills the queue although no worker has reported a rate.
func throughput() map[string]string {
	return map[string]string{
		"WORKER_CONCURRENCY": wholeConcurrency, "SES_MAX_SEND_RATE": strconv.Itoa(environment.SendRate),
	}
}
