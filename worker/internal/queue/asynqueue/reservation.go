package asynqueue

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/worker/internal/queue"
)

const (
	// reservationLife limits the grant of a dispatcher that was killed. It is longer than a batch, which publishes nothing
	// later than 4 s after its reservation.
	reservationLife = 5 * time.Second
	// holderLife is how long a publisher counts as active after a reservation, and gets a share of the room.
	holderLife = 10 * time.Second
	// windowLife is how long workers use the window that a dispatcher set last.
	windowLife = time.Minute
)

// reserveScript measures a queue and reserves room in one step, so that concurrent dispatchers do not exceed the window
// together.
//
// Each publisher is granted its share of the free room, so that one that is killed before it releases its grant leaves room to
// the others.
//
// An entry from more than a second ahead was written before Redis's clock was set back, or by a node whose clock was ahead. It is
// deleted: that of a dead publisher would otherwise count until the clock reaches it, and a running one writes it again.
//
// KEYS: pending, active, scheduled, retry, reserved, window; ARGV: window, most, holder, the lifetimes of a reservation and of
// a holder in milliseconds, the window's lifetime in seconds. reserved is a hash of holder -> "count end seen", in milliseconds
// of Redis's clock. It returns the depth and the grant, or the depth and an error message if Redis refuses writes.
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
        local age = now - seen
        if age > tonumber(ARGV[5]) or age < -1000 then
            redis.call("HDEL", KEYS[5], all[i])
        else
            holders = holders + 1
            if tonumber(over) >= now then
                reserved = reserved + tonumber(count)
            end
        end
    end
end
local free = math.ceil((window - depth - reserved) / holders)
local grant = math.max(0, math.min(tonumber(ARGV[2]), free))
redis.call("HSET", KEYS[5], ARGV[3], string.format("%d %.0f %.0f", grant, now + ARGV[4], now))
return {depth, grant}`)

// Reserve implements queue.Publisher. It measures the lists itself because asynq's GetQueueInfo
// also reads the oldest tasks, and fails for the whole queue if one of them has no hash.
func (p *Publisher) Reserve(ctx context.Context, queueName string, window, limit int) (queue.Room, error) {
	name := p.conn.queueName(queueName)
	k := keysOf(name)
	keys := []string{k.pending, k.active, k.scheduled, k.retry, ownKey(name, "reserved"), ownKey(name, "window")}
	answer, err := reserveScript.Run(ctx, p.redis, keys, window, limit, p.holder,
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

// releaseScript ends a holder's reservation. The holder still counts for the shares of the room. KEYS: reserved; ARGV: holder.
var releaseScript = redis.NewScript(`
local time = redis.call("TIME")
return redis.call("HSET", KEYS[1], ARGV[1], string.format("0 0 %.0f", time[1] * 1000 + math.floor(time[2] / 1000)))`)

// Release implements queue.Publisher.
func (p *Publisher) Release(ctx context.Context, queueName string) error {
	err := releaseScript.Run(ctx, p.redis, []string{ownKey(p.conn.queueName(queueName), "reserved")}, p.holder).Err()
	return wrap("release room on queue", err)
}
