package asynqueue

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/worker/internal/queue"
)

// clearScript removes what is left of a task that no worker would ever be given: its hash
// stands in no list, or in an archive, or says nothing. In one step, because a worker may
// take the task between a look and a deletion. The hash's own word about where it stands
// is not asked: after a crash between two commands, ours or an operator's, it is wrong.
//
// KEYS: hash, pending, active, lease, scheduled, retry, archived, completed, marker; ARGV: id,
// the time before which a lease is over, "all" to remove one that waits for its time too, and
// the marker's expiry in seconds. A task that is active has a lease; without one, or with one
// that was not renewed, it is a leftover of a crash. It returns a standing.
//
// The marker says for a while that a leftover was removed: a second caller that asks about the
// same task, or asks again after a crash, gets the same answer, and does not report the task as
// lost. SET is refused when Redis is full; the removal counts nevertheless.
var clearScript = redis.NewScript(`
if redis.call("HEXISTS", KEYS[1], "msg") == 1 and redis.call("LPOS", KEYS[2], ARGV[1]) then
    return 0
end
local lease = redis.call("ZSCORE", KEYS[4], ARGV[1])
if lease and tonumber(lease) >= tonumber(ARGV[2]) then
    return 1
end
if ARGV[3] ~= "all" and (redis.call("ZSCORE", KEYS[5], ARGV[1]) or redis.call("ZSCORE", KEYS[6], ARGV[1])) then
    return 2
end
local n = redis.call("LREM", KEYS[2], 0, ARGV[1]) + redis.call("LREM", KEYS[3], 0, ARGV[1])
for i = 4, 8 do
    n = n + redis.call("ZREM", KEYS[i], ARGV[1])
end
if n + redis.call("DEL", KEYS[1]) > 0 then
    redis.pcall("SET", KEYS[9], "", "EX", ARGV[4])
    return 3
end
if redis.call("EXISTS", KEYS[9]) == 1 then
    return 5
end
return 4`)

// standing is how clearScript found a task.
type standing int

const (
	ready         standing = iota // a worker will take it
	inWork                        // a worker has it
	waits                         // for its time, in asynq's retry or scheduled set
	removed                       // it stood in nobody's way but ours, and is gone
	absent                        // there was nothing of it
	removedBefore                 // it was a leftover that another call has just removed
)

// evictionMarker is how long an evicted task is remembered: several rounds of the rescuer, which
// are 5 s apart at most. A task that is published again and lost in this time counts as a leftover.
const evictionMarker = 30 * time.Second

// clockSkew is how far the clocks of two machines may be apart: a lease was written by a
// worker's. asynq itself allows for 30 s, and looks once a minute; an email would wait for
// its worker's death to be noticed for up to two minutes.
const clockSkew = 5 * time.Second

// Evict makes sure that a task of this id, if there is one, will be given to a worker.
//
// The lists are as long as the window; looking through them takes Redis microseconds.
func (p *Publisher) Evict(ctx context.Context, queueName, id string) (queue.Found, error) {
	stands, err := p.clear(ctx, queueName, id, false)
	switch {
	case err != nil:
		return queue.Kept, err
	case stands == removed:
		p.repairs.evicted.Add(1)
		return queue.Leftover, nil
	case stands == removedBefore:
		return queue.Leftover, nil
	case stands == absent:
		return queue.Missing, nil
	}
	return queue.Kept, nil
}

// clear runs clearScript. It says ready when Redis does not answer.
func (p *Publisher) clear(ctx context.Context, queueName, id string, waiting bool) (standing, error) {
	name := p.conn.queueName(queueName)
	base := "asynq:{" + name + "}:"
	keys := []string{
		base + "t:" + id, base + "pending", base + "active", base + "lease",
		base + "scheduled", base + "retry", base + "archived", base + "completed", ownKey(name, "evicted:"+id),
	}
	which := ""
	if waiting {
		which = "all"
	}
	n, err := clearScript.Run(ctx, p.redis, keys, id, leaseOver(), which, int(evictionMarker.Seconds())).Int()
	if err != nil {
		return ready, fmt.Errorf("clear task: %w", err)
	}
	return standing(n), nil
}

// leaseOver is the time before which a lease is over.
func leaseOver() int64 { return time.Now().Add(-clockSkew).Unix() }

// archivePage bounds how many archived tasks are deleted in one go.
const archivePage = 500

// unarchiveScript deletes archived tasks, each with its hash in one step: a hash without
// its place blocks the id for good, and one that was put on its queue again since it was
// listed must keep its own. KEYS: archived, then a hash for each id; ARGV: ids. It returns
// how many there were.
var unarchiveScript = redis.NewScript(`
local n = 0
for i, id in ipairs(ARGV) do
    if redis.call("ZREM", KEYS[1], id) == 1 then
        redis.call("DEL", KEYS[i + 1])
        n = n + 1
    end
end
return n`)

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
	keys, members := []string{archived}, make([]any, len(ids))
	for i, id := range ids {
		keys, members[i] = append(keys, "asynq:{"+name+"}:t:"+id), id
	}
	n, err := unarchiveScript.Run(ctx, p.redis, keys, members...).Int()
	return n, wrapped("delete archived tasks", err)
}

func wrapped(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", operation, err)
}
