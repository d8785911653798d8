package asynqueue

import (
	"context"
	"fmt"
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
	k := keysOf(name)
	keys := []string{
		k.task(id), k.pending, k.active, k.lease, k.scheduled, k.retry, k.archived, k.completed, ownKey(name, "evicted:"+id),
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
