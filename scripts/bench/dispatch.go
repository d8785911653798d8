package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/load"
	"email-gateway/scripts/bench/results"
	"email-gateway/shared/email"
	"email-gateway/shared/service"
)

func dispatch() Section {
	return Section{Name: "dispatch", What: "1 M due emails from the outbox to Redis, compared with asynq's own Enqueue and a poller", Run: runDispatch}
}

// pendingKey is the list on Redis in which asynq keeps the ids of waiting tasks, and retryKey the sorted set
// of those that wait for their next delivery, as do the few that a worker had when it was stopped.
const (
	pendingKey = "asynq:{" + email.QueueNormal + "}:pending"
	retryKey   = "asynq:{" + email.QueueNormal + "}:retry"
)

// dispatching holds a backlog and the programs that dispatch it.
type dispatching struct {
	environment *environment.Environment
	table       *results.Table
	system      *environment.System
	redis       *redis.Client
	asynq       *asynq.Client
	portion     int64  // number of emails dispatched per round; the table has some more
	lane        int64  // of all emails
	payload     []byte // of a task
}

func runDispatch(ctx context.Context, r *environment.Environment, t *results.Table) (err error) {
	backlog := environment.Scale(r, 1_000_000, 20_000)
	d := &dispatching{environment: r, table: t, portion: environment.Scale[int64](r, 120_000, 6_000)}
	if d.redis, err = r.RedisClient(); err != nil {
		return err
	}
	d.asynq = asynq.NewClient(asynq.RedisClientOpt{Addr: r.Redis.Addr})
	defer func() { err = errors.Join(err, d.close(context.WithoutCancel(ctx))) }()
	// An unreachable send rate makes the window unlimited; emails whose tasks are removed from
	// Redis between rounds must not be rescued.
	d.system, err = r.NewSystem(ctx, map[string]string{"SES_MAX_SEND_RATE": "100000000", "RESCUE_AFTER": "1h"})
	if err != nil {
		return err
	}
	t.Say("seeding %d emails, so that every round has %d before it", backlog+t.Rounds()*int(d.portion)*5/4, backlog)
	if err := d.system.Seed(ctx, backlog+t.Rounds()*int(d.portion)*5/4); err != nil {
		return err
	}
	if err := d.system.Vacuum(ctx); err != nil {
		return err
	}
	var text string
	if err := d.system.Database.QueryRowContext(ctx, "SELECT lane_id, payload FROM email_outbox LIMIT 1").Scan(&d.lane, &text); err != nil {
		return fmt.Errorf("read a payload: %w", err)
	}
	d.payload = []byte(text[:len(text)-1] + `,"attempt":1,"enqueuedAt":"2026-01-01T00:00:00.000000000Z"}`)
	return t.Compare(ctx,
		results.Subject{Name: fmt.Sprintf("backlog of %d", backlog), Unit: "emails/s", Measure: d.subject},
		results.Reference{Name: "asynq Client.Enqueue, 64 goroutines", Budget: 0.8, Moonshot: 1, Measure: d.enqueue},
		results.Reference{Name: "poller: 100 rows, each published and updated, 1 s of sleep", Budget: 200, Measure: d.poll},
	)
}

// subject measures the rate at which the dispatcher dispatches the portion, after its start-up.
func (d *dispatching) subject(ctx context.Context) (rate float64, err error) {
	if err := d.prepare(ctx); err != nil {
		return 0, err
	}
	before, err := d.enqueued(ctx)
	if err != nil {
		return 0, err
	}
	p, err := d.system.Start(ctx, "dispatcher", nil)
	if err != nil {
		return 0, err
	}
	if _, err := d.await(ctx, d.portion/8); err != nil {
		return 0, err
	}
	m := environment.NewMeter([]*environment.Program{p}, d.environment.Postgres, d.environment.Redis)
	if err := m.Start(); err != nil {
		return 0, err
	}
	first, err := d.await(ctx, 1)
	if err != nil {
		return 0, err
	}
	last, err := d.await(ctx, d.portion)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(m.Stop(), p.Stop(ctx)); err != nil {
		return 0, err
	}
	m.Record(d.table, "", "email", float64(last-first))
	after, err := d.enqueued(ctx)
	if err != nil {
		return 0, err
	}
	// A batch that was interrupted by the stop leaves its tasks on Redis and its rows due.
	if moved := after - before; moved < last-2000 {
		return 0, fmt.Errorf("there were %d tasks on redis, but only %d rows became ENQUEUED", last, moved)
	}
	return float64(last-first) / m.Length.Seconds(), nil
}

// prepare empties Redis and makes a checkpoint in Postgres.
func (d *dispatching) prepare(ctx context.Context) error {
	return errors.Join(d.environment.EmptyRedis(ctx), d.system.Checkpoint(ctx))
}

func (d *dispatching) enqueued(ctx context.Context) (int64, error) {
	return d.system.Count(ctx, "SELECT count(*) FROM email_outbox WHERE status = 'ENQUEUED'")
}

// await waits until that number of tasks is on Redis, and returns the actual number.
func (d *dispatching) await(ctx context.Context, tasks int64) (n int64, err error) {
	return awaitTasks(ctx, d.redis, tasks)
}

// awaitTasks waits until that number of tasks is on Redis, and returns the actual number.
func awaitTasks(ctx context.Context, client *redis.Client, tasks int64) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		pipe := client.Pipeline()
		pending, delayed := pipe.LLen(ctx, pendingKey), pipe.ZCard(ctx, retryKey)
		if _, err := pipe.Exec(ctx); err != nil {
			return 0, fmt.Errorf("count tasks: %w", err)
		}
		if n = pending.Val() + delayed.Val(); n >= tasks {
			return n, nil
		}
		if err := service.Pause(ctx, 10*time.Millisecond); err != nil {
			return 0, fmt.Errorf("wait for %d tasks on redis, there are %d: %w", tasks, n, err)
		}
	}
}

// enqueue measures asynq's own rate with tasks of the same size.
func (d *dispatching) enqueue(ctx context.Context) (float64, error) {
	if err := d.prepare(ctx); err != nil {
		return 0, err
	}
	const goroutines = 64
	return load.MeasureRate(goroutines, int(d.portion), func(int64) error { return d.publish(ctx, uuid.Must(uuid.NewV7()).String()) })
}

func (d *dispatching) publish(ctx context.Context, id string) error {
	_, err := d.asynq.EnqueueContext(ctx, asynq.NewTask(email.TargetSend, d.payload),
		asynq.TaskID(id), asynq.Queue(email.QueueNormal), asynq.MaxRetry(100), asynq.Timeout(2*time.Minute))
	if err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	return nil
}

func (d *dispatching) close(ctx context.Context) error {
	errs := []error{d.environment.StopPrograms(ctx), d.asynq.Close(), d.environment.EmptyRedis(ctx), d.redis.Close()}
	if d.system != nil {
		errs = append(errs, d.system.Close(ctx))
	}
	return errors.Join(errs...)
}
