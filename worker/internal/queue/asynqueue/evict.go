package asynqueue

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/worker/internal/queue"
)

// clearScript removes the remains of a task that no worker would ever receive: its hash is in no list, is archived or has no
// message. It is one step, because a worker may take the task between a read and a deletion. The state in the hash is ignored:
// it is wrong after a crash between two commands.
//
// KEYS: hash, pending, active, lease, scheduled, retry, archived, completed, marker; ARGV: id, the results of scoresNow, "all" to
// remove a delayed task too, and the marker's expiry in seconds. It returns a taskState.
//
// An active task has a lease; without one, or with one that was not renewed, it is a leftover of a crash. A lease or a delay
// that ends later than that of any running worker is a leftover of one whose clock was ahead: see farthest. The lease is read
// first, because LPOS reads the whole list of pending tasks if the task is active: 0.5 ms with 50,000 of them, while Redis
// serves no other client.
//
// The marker records for a while that a leftover was removed: a second call for the same task, concurrent or after a crash,
// gets the same result and does not report the task as lost. SET fails if Redis is full; the removal is reported nevertheless.
var clearScript = redis.NewScript(isCurrent + `
if current(redis.call("ZSCORE", KEYS[4], ARGV[1]), ARGV[2], ARGV[3]) then
    return 1
end
if redis.call("HEXISTS", KEYS[1], "msg") == 1 and redis.call("LPOS", KEYS[2], ARGV[1]) then
    return 0
end
local delay = redis.call("ZSCORE", KEYS[5], ARGV[1]) or redis.call("ZSCORE", KEYS[6], ARGV[1])
if ARGV[4] ~= "all" and current(delay, 0, ARGV[3]) then
    return 2
end
local n = redis.call("LREM", KEYS[2], 0, ARGV[1]) + redis.call("LREM", KEYS[3], 0, ARGV[1])
for i = 4, 8 do
    n = n + redis.call("ZREM", KEYS[i], ARGV[1])
end
if n + redis.call("DEL", KEYS[1]) > 0 then
    redis.pcall("SET", KEYS[9], "", "EX", ARGV[5])
    return 3
end
if redis.call("EXISTS", KEYS[9]) == 1 then
    return 5
end
return 4`)

// taskState is the state in which clearScript found a task.
type taskState int

const (
	ready         taskState = iota // a worker will take it
	active                         // a worker has it
	delayed                        // in asynq's retry or scheduled set
	removed                        // no worker would have received it; removed
	absent                         // there was no task
	removedBefore                  // a leftover that another call has just removed
)

// evictionMarker is how long the marker of an eviction exists: several rounds of the rescuer, which are at most 5 s apart. A
// task that is published again and lost within this time counts as a leftover.
const evictionMarker = 30 * time.Second

// Evict looks up the task of this id and removes it if no worker will ever receive it.
//
// It searches lists that are as long as the window: with 50,000 tasks that takes Redis 0.5 to 1 ms.
func (p *Publisher) Evict(ctx context.Context, queueName, id string) (queue.Found, error) {
	state, err := p.clear(ctx, queueName, id, false)
	switch {
	case err != nil:
		return queue.Kept, err
	case state == removed:
		p.repairs.evicted.Add(1)
		return queue.Leftover, nil
	case state == removedBefore:
		return queue.Leftover, nil
	case state == absent:
		return queue.Missing, nil
	}
	return queue.Kept, nil
}

// clear runs clearScript. The state is ready if there is an error.
func (p *Publisher) clear(ctx context.Context, queueName, id string, waiting bool) (taskState, error) {
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
	first, last := scoresNow()
	n, err := clearScript.Run(ctx, p.redis, keys, id, first, last, which, int(evictionMarker.Seconds())).Int()
	if err != nil {
		return ready, fmt.Errorf("clear task: %w", err)
	}
	return taskState(n), nil
}

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
	archived := "asynq:{" + name + "}:archived"
	until := strconv.FormatInt(time.Now().Add(-age).Unix(), 10)
	ids, err := p.redis.ZRangeByScore(ctx, archived, &redis.ZRangeBy{Min: "-inf", Max: until, Count: archivePage}).Result()
	if err != nil || len(ids) == 0 {
		return 0, wrapped("list archived tasks", err)
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
	ids, err := excessScript.Run(ctx, p.redis, []string{"asynq:{" + name + "}:archived"}, keep, archivePage).StringSlice()
	if err != nil || len(ids) == 0 {
		return 0, wrapped("list archived tasks", err)
	}
	return p.unarchive(ctx, name, ids)
}

// unarchive deletes archived tasks of the queue that Redis calls name, and returns how many it deleted.
func (p *Publisher) unarchive(ctx context.Context, name string, ids []string) (int, error) {
	keys, members := []string{"asynq:{" + name + "}:archived"}, make([]any, len(ids))
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
