package asynqueue

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/worker/internal/queue"
)

const (
	// registry is the set of queue names that asynq's Inspector and the dashboard believe in.
	registry = "asynq:queues"
	// reservationLife ends the grant of a dispatcher that was killed. It is longer than a
	// batch takes: 2 s to publish, and what the database needs.
	reservationLife = 10 * time.Second
	// windowLife is how long workers go by the window that the dispatchers named last.
	windowLife = time.Minute
	// waitingShare of a window may wait for its time on the queue; other retries wait in
	// Postgres, so that they leave room for what is due.
	waitingShare     = 4
	registerInterval = time.Second
	// roomTimeout bounds the look at a queue's room. The result of an attempt waits for it.
	roomTimeout = 500 * time.Millisecond
)

// reserveScript measures a queue and reserves room on it in one step, so that dispatchers
// that do this at the same time do not exceed the window together.
//
// KEYS: pending, active, scheduled, retry, reserved, window; ARGV: window, most, holder, now
// and the end of the reservation in milliseconds, the window's life in seconds. reserved is a
// hash of holder -> "count end". It returns the depth and the grant, or the depth and the
// error of a Redis that takes no writes.
var reserveScript = redis.NewScript(`
local depth = redis.call("LLEN", KEYS[1]) + redis.call("LLEN", KEYS[2]) + redis.call("ZCARD", KEYS[3]) + redis.call("ZCARD", KEYS[4])
local set = redis.pcall("SET", KEYS[6], ARGV[1], "EX", ARGV[6])
if set.err then
    return {depth, set.err}
end
local window, reserved = tonumber(ARGV[1]), 0
local all = redis.call("HGETALL", KEYS[5])
for i = 1, #all, 2 do
    local count, over = string.match(all[i + 1], "(%d+) (%d+)")
    if tonumber(over) < tonumber(ARGV[4]) then
        redis.call("HDEL", KEYS[5], all[i])
    elseif all[i] ~= ARGV[3] then
        reserved = reserved + tonumber(count)
    end
end
local grant = math.max(0, math.min(tonumber(ARGV[2]), window - depth - reserved))
if grant > 0 then
    redis.call("HSET", KEYS[5], ARGV[3], grant .. " " .. ARGV[5])
else
    redis.call("HDEL", KEYS[5], ARGV[3])
end
return {depth, grant}`)

// ownKey is a key of ours beside asynq's of the same queue. Both have the same hash tag, so
// that a cluster keeps them in one place.
func ownKey(queue, what string) string { return "email-gateway:{" + queue + "}:" + what }

// Reserve implements queue.Publisher. The lists are measured themselves because asynq's
// GetQueueInfo reads the oldest tasks too, and fails for the whole queue when one of their
// ids dangles.
func (p *Publisher) Reserve(ctx context.Context, queueName string, window, most int) (queue.Room, error) {
	name, now := p.conn.queueName(queueName), time.Now()
	base := "asynq:{" + name + "}:"
	keys := []string{
		base + "pending", base + "active", base + "scheduled", base + "retry", ownKey(name, "reserved"), ownKey(name, "window"),
	}
	answer, err := reserveScript.Run(ctx, p.redis, keys, window, most, p.holder,
		now.UnixMilli(), now.Add(reservationLife).UnixMilli(), int(windowLife.Seconds())).Slice()
	if err != nil || len(answer) != 2 {
		return queue.Room{}, fmt.Errorf("reserve room on queue: %w", err)
	}
	depth, _ := answer[0].(int64)
	grant, granted := answer[1].(int64)
	room := queue.Room{Depth: int(depth), Granted: int(grant)}
	if !granted {
		return room, fmt.Errorf("reserve room on queue: %v", answer[1])
	}
	if err := p.register(ctx, name); err != nil {
		return room, err
	}
	return room, nil
}

// register puts a queue's name where Inspector and dashboard look for it, once per
// registerInterval: a flushed Redis lost it, and asynq's client says it only once per process.
func (p *Publisher) register(ctx context.Context, name string) error {
	last, _ := p.registered.Load(name)
	if at, ok := last.(time.Time); ok && time.Since(at) < registerInterval {
		return nil
	}
	added, err := p.redis.SAdd(ctx, registry, name).Result()
	if err != nil {
		return fmt.Errorf("register queue: %w", err)
	}
	p.registered.Store(name, time.Now())
	p.repairs.named(name, added == 1)
	return nil
}

// Release implements queue.Publisher.
func (p *Publisher) Release(ctx context.Context, queueName string) error {
	err := p.redis.HDel(ctx, ownKey(p.conn.queueName(queueName), "reserved"), p.holder).Err()
	return wrapped("release room on queue", err)
}

// RetryRoom is the share of each queue's window in which retries wait.
type RetryRoom struct {
	conn  Conn
	redis redis.UniversalClient
}

// NewRetryRoom makes a RetryRoom that uses the client of its caller.
func NewRetryRoom(conn Conn, client redis.UniversalClient) *RetryRoom {
	return &RetryRoom{conn: conn, redis: client}
}

// Free says whether one more task may wait on the queue for its time. It may not while no
// dispatcher has named the queue's window, or Redis does not answer within 0.5 s.
func (r *RetryRoom) Free(ctx context.Context, queueName string) bool {
	ctx, cancel := context.WithTimeout(ctx, roomTimeout)
	defer cancel()
	name := r.conn.queueName(queueName)
	pipe := r.redis.Pipeline()
	window := pipe.Get(ctx, ownKey(name, "window"))
	retry := pipe.ZCard(ctx, "asynq:{"+name+"}:retry")
	scheduled := pipe.ZCard(ctx, "asynq:{"+name+"}:scheduled")
	if _, err := pipe.Exec(ctx); err != nil {
		return false
	}
	size, err := window.Int64()
	return err == nil && (retry.Val()+scheduled.Val())*waitingShare < size
}
