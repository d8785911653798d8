package asynqueue

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/worker/internal/queue"
)

const (
	// reservationLife ends the grant of a dispatcher that was killed. It is longer than a
	// batch takes, which publishes nothing 4 s after its take began.
	reservationLife = 5 * time.Second
	// holderLife is how long a publisher that reserved something counts as one that needs its
	// share of the room.
	holderLife = 10 * time.Second
	// windowLife is how long workers go by the window that the dispatchers named last.
	windowLife = time.Minute
	// waitingShare of a window may wait for its time on the queue; other retries wait in
	// Postgres, so that they leave room for what is due.
	waitingShare = 4
	// roomTimeout bounds the look at a queue's room. The result of an attempt waits for it.
	roomTimeout = 500 * time.Millisecond
)

// reserveScript measures a queue and reserves room on it in one step, so that dispatchers
// that do this at the same time do not exceed the window together.
//
// A publisher is granted its share of what is free, so that one that is killed before it
// releases its grant leaves room to the others.
//
// KEYS: pending, active, scheduled, retry, reserved, window; ARGV: window, most, holder, the
// life of a reservation and of a holder in milliseconds, the window's life in seconds.
// reserved is a hash of holder -> "count end seen", in milliseconds of Redis's clock. It returns the depth
// and the grant, or the depth and the error of a Redis that takes no writes.
var reserveScript = redis.NewScript(`
local depth = redis.call("LLEN", KEYS[1]) + redis.call("LLEN", KEYS[2]) + redis.call("ZCARD", KEYS[3]) + redis.call("ZCARD", KEYS[4])
local set = redis.pcall("SET", KEYS[6], ARGV[1], "EX", ARGV[6])
if set.err then
    return {depth, set.err}
end
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local window, reserved, holders = tonumber(ARGV[1]), 0, 1
local all = redis.call("HGETALL", KEYS[5])
for i = 1, #all, 2 do
    local count, over, seen = string.match(all[i + 1], "(%d+) (%d+) (%d+)")
    if all[i] ~= ARGV[3] then
        if tonumber(over) >= now then
            reserved = reserved + tonumber(count)
        end
        if tonumber(seen) + tonumber(ARGV[5]) >= now then
            holders = holders + 1
        else
            redis.call("HDEL", KEYS[5], all[i])
        end
    end
end
local free = math.ceil((window - depth - reserved) / holders)
local grant = math.max(0, math.min(tonumber(ARGV[2]), free))
redis.call("HSET", KEYS[5], ARGV[3], string.format("%d %.0f %.0f", grant, now + ARGV[4], now))
return {depth, grant}`)

// ownKey is a key of ours beside asynq's of the same queue. Both have the same hash tag, so
// that a cluster keeps them in one place.
func ownKey(queue, what string) string { return "email-gateway:{" + queue + "}:" + what }

// Reserve implements queue.Publisher. The lists are measured themselves because asynq's
// GetQueueInfo reads the oldest tasks too, and fails for the whole queue when one of their
// ids dangles.
func (p *Publisher) Reserve(ctx context.Context, queueName string, window, most int) (queue.Room, error) {
	name := p.conn.queueName(queueName)
	base := "asynq:{" + name + "}:"
	keys := []string{
		base + "pending", base + "active", base + "scheduled", base + "retry", ownKey(name, "reserved"), ownKey(name, "window"),
	}
	answer, err := reserveScript.Run(ctx, p.redis, keys, window, most, p.holder,
		reservationLife.Milliseconds(), holderLife.Milliseconds(), int(windowLife.Seconds())).Slice()
	if err != nil || len(answer) != 2 {
		return queue.Room{}, fmt.Errorf("reserve room on queue: %w", err)
	}
	depth, _ := answer[0].(int64)
	grant, granted := answer[1].(int64)
	room := queue.Room{Depth: int(depth), Granted: int(grant)}
	if !granted {
		return room, fmt.Errorf("reserve room on queue: %v", answer[1])
	}
	return room, p.names.register(ctx, p.redis, name)
}

// releaseScript ends a holder's reservation and leaves the holder, for its share of the room.
// KEYS: reserved; ARGV: holder.
var releaseScript = redis.NewScript(`
local time = redis.call("TIME")
return redis.call("HSET", KEYS[1], ARGV[1], string.format("0 0 %.0f", time[1] * 1000 + math.floor(time[2] / 1000)))`)

// Release implements queue.Publisher.
func (p *Publisher) Release(ctx context.Context, queueName string) error {
	err := releaseScript.Run(ctx, p.redis, []string{ownKey(p.conn.queueName(queueName), "reserved")}, p.holder).Err()
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
