package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"email-gateway/shared/service"
)

// rates are what a gateway does in each step by itself, and in all of them at once, in
// emails per second.
type rates struct{ Accept, Dispatch, Send, Whole float64 }

// lap measures each step on n emails: the api alone takes them in, the dispatcher queues
// them, the worker sends them; then all three at once, n more. The programs are started for
// it and stopped again.
func (g *gateway) lap(ctx context.Context, n int) (r rates, err error) {
	if err := g.rig.EmptyRedis(ctx); err != nil {
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
	taken, begun := g.ses.Taken(), time.Now()
	emails, err := g.tenant.postBatch(ctx, n)
	if err != nil {
		return r, err
	}
	r.Accept = perSecond(emails, time.Since(begun))
	if r.Dispatch, err = g.dispatchAll(ctx, emails); err != nil {
		return r, err
	}
	if r.Send, err = g.sendAll(ctx, taken, begun, emails); err != nil {
		return r, err
	}
	if err := g.system.Checkpoint(ctx); err != nil {
		return r, err
	}
	b, err := g.sendBatch(ctx, n)
	r.Whole = perSecond(b.emails, b.sent)
	return r, err
}

// dispatchAll starts the dispatcher before closed lanes, opens them, and returns how many
// emails per second it put on the queue, from the first eighth on until all stood there.
func (g *gateway) dispatchAll(ctx context.Context, emails int) (rate float64, err error) {
	client, err := g.rig.RedisClient()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := g.system.exec(ctx, `UPDATE dispatch_lanes SET held_at = now(), held_reason = 'bench'`); err != nil {
		return 0, err
	}
	if err := g.start(ctx, "dispatcher"); err != nil {
		return 0, err
	}
	if err := g.system.exec(ctx, `UPDATE dispatch_lanes SET held_at = NULL, held_reason = NULL`); err != nil {
		return 0, err
	}
	first, err := awaitTasks(ctx, client, int64(emails)/8)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	last, err := awaitTasks(ctx, client, int64(emails))
	return perSecond(int(last-first), time.Since(begun)), err
}

func (s *System) exec(ctx context.Context, statement string, args ...any) error {
	if _, err := s.Database.ExecContext(ctx, statement, args...); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// sendAll starts the worker before the full queue and returns how many emails per second it
// sent, from the first one that SES got until Postgres held the last one as SENT.
func (g *gateway) sendAll(ctx context.Context, taken int64, accepted time.Time, emails int) (float64, error) {
	started := make(chan error, 1)
	go func() { started <- g.start(ctx, "worker") }()
	waiting, cancel := context.WithTimeoutCause(ctx, sendPatience, fmt.Errorf("no email was sent within %s", sendPatience))
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
			started <- nil // for the one who waits below
		default:
		}
	}
	before, begun := g.ses.Taken()-taken, time.Now()
	err := g.awaitSent(ctx, taken, accepted, emails)
	return perSecond(emails-int(before), time.Since(begun)), errors.Join(err, <-started)
}

func perSecond(n int, took time.Duration) float64 { return float64(n) / took.Seconds() }

// throughput is the environment of a gateway that is measured by how much it can do: enough
// emails in hand, and a dispatcher that fills the queue although no worker tells of a rate.
func throughput() map[string]string {
	return map[string]string{
		"WORKER_CONCURRENCY": wholeConcurrency, "SES_MAX_SEND_RATE": strconv.Itoa(sendRate),
	}
}
