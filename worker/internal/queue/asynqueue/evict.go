package asynqueue

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// evictScript removes what is left of a task that no worker would ever be given: its
// hash stands in no list, or in an archive. In one step, because a worker may take the
// task between a look and a deletion. It returns 1 when the id is free.
//
// KEYS: hash, pending, active, lease, scheduled, retry, archived, completed; ARGV: id, and
// the time before which a lease is over. A task that is active has a lease; without one,
// or with one that nobody has renewed, it is a leftover of a crash.
var evictScript = redis.NewScript(`
if redis.call("ZSCORE", KEYS[5], ARGV[1]) or redis.call("ZSCORE", KEYS[6], ARGV[1]) then
    return 0
end
local lease = redis.call("ZSCORE", KEYS[4], ARGV[1])
if lease and tonumber(lease) >= tonumber(ARGV[2]) then
    return 0
end
if redis.call("EXISTS", KEYS[1]) == 1 and redis.call("LPOS", KEYS[2], ARGV[1]) then
    return 0
end
redis.call("LREM", KEYS[2], 0, ARGV[1])
redis.call("LREM", KEYS[3], 0, ARGV[1])
redis.call("ZREM", KEYS[4], ARGV[1])
redis.call("ZREM", KEYS[7], ARGV[1])
redis.call("ZREM", KEYS[8], ARGV[1])
redis.call("DEL", KEYS[1])
return 1`)

// clockSkew is how far the clocks of two machines may be apart: a lease was written by a
// worker's. asynq itself allows for 30 s, and looks once a minute; an email would wait for
// its worker's death to be noticed for up to two minutes.
const clockSkew = 5 * time.Second

// Evict makes sure that a task of this id, if there is one, will be given to a worker.
// gone says that there is none, or that there was one that never would have been.
//
// The lists are as long as the window; looking through them takes Redis microseconds.
func (p *Publisher) Evict(ctx context.Context, queueName, id string) (gone bool, err error) {
	base := "asynq:{" + p.conn.queueName(queueName) + "}:"
	keys := []string{
		base + "t:" + id, base + "pending", base + "active", base + "lease",
		base + "scheduled", base + "retry", base + "archived", base + "completed",
	}
	n, err := evictScript.Run(ctx, p.redis, keys, id, time.Now().Add(-clockSkew).Unix()).Int()
	if err != nil {
		return false, fmt.Errorf("evict task: %w", err)
	}
	return n == 1, nil
}

// archivePage bounds how many archived tasks are deleted in one go.
const archivePage = 500

// CleanArchive deletes tasks that were archived longer ago than age, and says how many
// there were, archivePage at most. asynq itself drops the oldest only beyond 10,000 of
// them or 90 days.
func (p *Publisher) CleanArchive(ctx context.Context, queueName string, age time.Duration) (int, error) {
	name := p.conn.queueName(queueName)
	archived := "asynq:{" + name + "}:archived"
	until := strconv.FormatInt(time.Now().Add(-age).Unix(), 10)
	ids, err := p.redis.ZRangeByScore(ctx, archived, &redis.ZRangeBy{Min: "-inf", Max: until, Count: archivePage}).Result()
	if err != nil || len(ids) == 0 {
		return 0, wrapped("list archived tasks", err)
	}
	pipe := p.redis.Pipeline()
	for _, id := range ids {
		pipe.ZRem(ctx, archived, id)
		pipe.Del(ctx, "asynq:{"+name+"}:t:"+id)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, fmt.Errorf("delete archived tasks: %w", err)
	}
	return len(ids), nil
}

func wrapped(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", operation, err)
}
