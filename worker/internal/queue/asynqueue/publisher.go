// Package asynqueue is the queue on Redis, through hibiken/asynq. It implements the
// contract of package queue and passes its suite (queuetest); the main functions of
// dispatcher and worker are the only ones that name it.
//
// asynq's own retries, deadlines and archive decide nothing here: Postgres counts
// the tries, knows the deadline and keeps the dead letters.
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
	// taskType is the job's name in the contract and in the dashboard.
	taskType = "email:send"
	// maxRetry is out of reach. A crash counts as a retry for asynq, and a task that
	// ran out of them would be archived without anybody being told.
	maxRetry = 1_000_000
	// taskTimeout is when asynq stops waiting for a handler. A handler waits 45 s for
	// the send rate and 30 s for the provider, so this one never decides.
	taskTimeout = 120 * time.Second
	// publishRounds bounds how often a task that keeps changing under our hands is
	// looked at. Each round needs a worker or another dispatcher to have interfered.
	publishRounds = 5

	// headerTraceparent is the task's only header.
	headerTraceparent = "traceparent"
)

// Publisher puts tasks on the queues.
type Publisher struct {
	conn    Conn
	redis   redis.UniversalClient
	client  *asynq.Client
	repairs repairs
	holder  string // of reservations
	names   *registrar
}

// NewPublisher makes a Publisher with connections of its own. It does not connect
// yet: Redis may come up later.
func NewPublisher(conn Conn) *Publisher {
	r := conn.open()
	p := &Publisher{conn: conn, redis: r, client: asynq.NewClientFromRedisClient(r), holder: uuid.NewString()}
	_, several := r.(*redis.ClusterClient)
	p.names = &registrar{background: several, repairs: &p.repairs}
	r.AddHook(p.names)
	r.AddHook(&coalescer{client: r})
	return p
}

// Publish implements queue.Publisher.
//
// asynq refuses an id that exists in any state, and go-redis repeats a command
// whose answer got lost, so a conflict may be the answer to the very first call. It
// is neither failure nor proof: what stands there decides. A task that is ready or in a
// worker's hands stays; any other waits for something that nobody wants any more, or is
// what a crash left of one, and makes room.
func (p *Publisher) Publish(ctx context.Context, task queue.Task) (queue.Placed, error) {
	name := p.conn.queueName(task.Queue)
	var headers map[string]string
	if task.Traceparent != "" {
		headers = map[string]string{headerTraceparent: task.Traceparent}
	}
	obstacle, placed := errors.New("it keeps coming back"), queue.Queued
	for range publishRounds {
		_, err := p.client.EnqueueContext(ctx, asynq.NewTaskWithHeaders(taskType, task.Payload, headers),
			asynq.TaskID(task.ID), asynq.Queue(name), asynq.MaxRetry(maxRetry), asynq.Timeout(taskTimeout))
		if err == nil {
			return placed, nil
		}
		if !errors.Is(err, asynq.ErrTaskIDConflict) {
			return queue.Queued, fmt.Errorf("enqueue task: %w", err)
		}
		stands, err := p.clear(ctx, task.Queue, task.ID, true)
		switch {
		case err != nil:
			obstacle = err // the next round tells whether it lasts
		case stands == ready:
			return queue.Standing, nil
		case stands == inWork:
			return queue.Busy, nil
		case stands == removed:
			placed = queue.Replaced
			p.repairs.replaced.Add(1)
		}
	}
	return queue.Queued, fmt.Errorf("enqueue task over another of its id: %w", obstacle)
}

// Oldest is how long the oldest pending task has waited, 0 if there is none. A task that
// is in a worker's hands does not wait. asynq notes the time on the task itself.
func (p *Publisher) Oldest(ctx context.Context, queueName string) (time.Duration, error) {
	base := "asynq:{" + p.conn.queueName(queueName) + "}:"
	id, err := p.redis.LIndex(ctx, base+"pending", -1).Result()
	if err == nil {
		var since int64
		if since, err = p.redis.HGet(ctx, base+"t:"+id, "pending_since").Int64(); err == nil {
			return max(time.Since(time.Unix(0, since)), 0), nil
		}
	}
	if errors.Is(err, redis.Nil) { // nothing waits, or it was taken a moment ago
		return 0, nil
	}
	return 0, fmt.Errorf("look at the oldest task: %w", err)
}

// Ping says whether every queue can be written to.
func (p *Publisher) Ping(ctx context.Context) error { return p.conn.ping(ctx, p.redis) }

// Close ends the connections.
func (p *Publisher) Close() error {
	err := p.redis.Close()
	p.names.adding.Wait()
	return wrapped("close redis", err)
}
