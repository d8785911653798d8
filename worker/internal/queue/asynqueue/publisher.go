// Package asynqueue is the queue adapter for Redis. It uses hibiken/asynq, implements the contract of package queue and passes
// its suite (queuetest). Only the main packages of dispatcher and worker refer to it.
//
// The retries, deadlines and archive of asynq decide nothing: Postgres counts the tries, and stores the deadline and the dead
// letters.
//
// A Redis that is full refuses writes: Reserve fails, so dispatchers take no rows, and emails wait in Postgres. The
// results of active emails are recorded in Postgres in any case. Consumers pause for up to 0.5 s between scripts that
// Redis refuses (TestRedisFull of scripts/e2e). If Redis is down, Reserve and the scripts fail in the same way, and
// RetryRoom leaves retries to Postgres.
package asynqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"email-gateway/worker/internal/queue"
)

const (
	// taskType is the task's type in asynq and in the dashboard.
	taskType = "email:send"
	// maxRetry is never reached. asynq counts a crash as a retry, and silently archives a task without retries left.
	maxRetry = 1_000_000
	// taskTimeout is when asynq stops waiting for a handler. A handler waits up to 45 s for the
	// send rate and 30 s for the provider, so it is never reached.
	taskTimeout = 120 * time.Second
	// publishRounds bounds the retries of a publish whose task changes meanwhile. Each retry means that a worker or another
	// dispatcher has changed it.
	publishRounds = 5

	// headerTraceparent is the task's only header.
	headerTraceparent = "traceparent"
)

// Publisher puts tasks on the queues.
type Publisher struct {
	conn      Conn
	redis     redis.UniversalClient
	client    *asynq.Client
	repairs   repairCounts
	holder    string // owner of the reservations
	names     *registrar
	announcer *announcer
}

// NewPublisher makes a Publisher with its own connections. It does not connect yet: Redis may start
// later.
func NewPublisher(conn Conn) *Publisher {
	r := conn.open()
	p := &Publisher{conn: conn, redis: r, client: asynq.NewClientFromRedisClient(r), holder: uuid.NewString()}
	_, several := r.(*redis.ClusterClient)
	p.names = &registrar{background: several, repairs: &p.repairs}
	p.announcer = &announcer{redis: r, channel: conn.announcements()}
	r.AddHook(p.names)
	coalesce(r)
	return p
}

// Publish implements queue.Publisher.
//
// asynq refuses an id that exists in any state, and go-redis repeats a command whose answer was lost, so even the first call
// may get a conflict with its own task. The state of the existing task therefore decides: a ready or active task is not
// changed; any other one is delayed or a leftover of a crash, and is replaced.
func (p *Publisher) Publish(ctx context.Context, task queue.Task) (queue.Placed, error) {
	name := p.conn.queueName(task.Queue)
	var headers map[string]string
	if task.Traceparent != "" {
		headers = map[string]string{headerTraceparent: task.Traceparent}
	}
	obstacle, placed := errors.New("the existing task reappeared after each removal"), queue.Queued
	for range publishRounds {
		_, err := p.client.EnqueueContext(ctx, asynq.NewTaskWithHeaders(taskType, task.Payload, headers),
			asynq.TaskID(task.ID), asynq.Queue(name), asynq.MaxRetry(maxRetry), asynq.Timeout(taskTimeout))
		if err == nil {
			p.announcer.announce()
			return placed, nil
		}
		if !errors.Is(err, asynq.ErrTaskIDConflict) {
			return queue.Queued, fmt.Errorf("enqueue task: %w", err)
		}
		state, err := p.clear(ctx, task.Queue, task.ID, true)
		switch {
		case err != nil:
			obstacle = err // returned if the next rounds fail too
		case state == ready:
			return queue.AlreadyQueued, nil
		case state == active:
			return queue.Busy, nil
		case state == removed:
			placed = queue.Replaced
			p.repairs.replaced.Add(1)
		}
	}
	return queue.Queued, fmt.Errorf("enqueue task over another of its id: %w", obstacle)
}

// Oldest returns the age of the oldest pending task, 0 if there is none. Active tasks do not count.
// asynq stores the time in the task's hash.
func (p *Publisher) Oldest(ctx context.Context, queueName string) (time.Duration, error) {
	keys := keysOf(p.conn.queueName(queueName))
	id, err := p.redis.LIndex(ctx, keys.pending, -1).Result()
	if err == nil {
		var since int64
		if since, err = p.redis.HGet(ctx, keys.task(id), "pending_since").Int64(); err == nil {
			return max(time.Since(time.Unix(0, since)), 0), nil
		}
	}
	if errors.Is(err, redis.Nil) { // the queue is empty, or the task has just been taken
		return 0, nil
	}
	return 0, fmt.Errorf("read the oldest task: %w", err)
}

// Ping reports whether every queue can be written to.
func (p *Publisher) Ping(ctx context.Context) error { return p.conn.ping(ctx, p.redis) }

// Close closes the connections.
func (p *Publisher) Close() error {
	p.announcer.sending.Wait()
	err := p.redis.Close()
	p.names.adding.Wait()
	return wrap("close redis", err)
}
