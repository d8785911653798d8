package asynqueue

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// archivePage bounds the archived tasks deleted per call.
const archivePage = 500

// unarchiveScript deletes archived tasks, each with its hash in one step: a hash in no list blocks the id forever, and a task
// that was enqueued again after it was listed must keep its hash. KEYS: archived, then a hash per id; ARGV: ids. It returns the
// number of deleted tasks.
var unarchiveScript = redis.NewScript(`
local n = 0
for i, id in ipairs(ARGV) do
    if redis.call("ZREM", KEYS[1], id) == 1 then
        redis.call("DEL", KEYS[i + 1])
        n = n + 1
    end
end
return n`)

// CleanArchive deletes tasks that were archived longer ago than age and returns their number, at most archivePage. asynq itself
// deletes only the oldest beyond 10,000 tasks, or after 90 days.
func (p *Publisher) CleanArchive(ctx context.Context, queueName string, age time.Duration) (int, error) {
	name := p.conn.queueName(queueName)
	archived := keysOf(name).archived
	until := strconv.FormatInt(time.Now().Add(-age).Unix(), 10)
	ids, err := p.redis.ZRangeByScore(ctx, archived, &redis.ZRangeBy{Min: "-inf", Max: until, Count: archivePage}).Result()
	if err != nil || len(ids) == 0 {
		return 0, wrap("list archived tasks", err)
	}
	return p.unarchive(ctx, name, ids)
}

// excessScript lists the oldest archived tasks beyond the newest ARGV[1], at most ARGV[2]. It is one step: otherwise another
// dispatcher could delete tasks between the count and the read, and the script would list too many.
var excessScript = redis.NewScript(`
local n = redis.call("ZCARD", KEYS[1]) - tonumber(ARGV[1])
if n <= 0 then
    return {}
end
return redis.call("ZRANGE", KEYS[1], 0, math.min(n, tonumber(ARGV[2])) - 1)`)

// TrimArchive deletes all archived tasks but the newest keep, at most archivePage, and returns their number.
func (p *Publisher) TrimArchive(ctx context.Context, queueName string, keep int) (int, error) {
	name := p.conn.queueName(queueName)
	ids, err := excessScript.Run(ctx, p.redis, []string{keysOf(name).archived}, keep, archivePage).StringSlice()
	if err != nil || len(ids) == 0 {
		return 0, wrap("list archived tasks", err)
	}
	return p.unarchive(ctx, name, ids)
}

// unarchive deletes archived tasks of the queue that Redis calls name, and returns how many it deleted.
func (p *Publisher) unarchive(ctx context.Context, name string, ids []string) (int, error) {
	k := keysOf(name)
	keys, members := []string{k.archived}, make([]any, len(ids))
	for i, id := range ids {
		keys, members[i] = append(keys, k.task(id)), id
	}
	n, err := unarchiveScript.Run(ctx, p.redis, keys, members...).Int()
	return n, wrap("delete archived tasks", err)
}
