package asynqueue

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// strayScript removes list entries that would stay in their list forever. A worker cannot run a task without a message, and
// asynq's recovery ignores it. Nothing finds an active task without a lease, since asynq sets both in one step. The outbox rows
// are not needed for the decision: no worker will receive these tasks in any case, and every other id on the lists reaches a
// worker, which reads its row.
//
// KEYS: pending, active, lease; ARGV: the prefix of the key of a hash, which of the first two lists, the first and last index,
// and the results of scoresNow. It returns how many entries were read and how many removed. The keys of the hashes have the same
// hash tag, so a cluster keeps them on one node.
var strayScript = redis.NewScript(isCurrent + `
local list = KEYS[tonumber(ARGV[2])]
local ids = redis.call("LRANGE", list, ARGV[3], ARGV[4])
local n = 0
for _, id in ipairs(ids) do
    local lease = redis.call("ZSCORE", KEYS[3], id)
    local whole = redis.call("HEXISTS", ARGV[1] .. id, "msg") == 1
    local held = current(lease, ARGV[5], ARGV[6])
    if not held and (not whole or (list == KEYS[2] and not lease)) then
        redis.call("LREM", list, 0, id)
        redis.call("ZREM", KEYS[3], id)
        if not (whole and redis.call("LPOS", KEYS[1], id)) then
            redis.call("DEL", ARGV[1] .. id)
        end
        n = n + 1
    end
end
return {#ids, n}`)

// strayPage bounds one call of the script, which takes Redis a millisecond.
const strayPage = 500

// RemoveStrays removes list entries that a crash or a data loss has left and that no worker will ever take, and returns their
// number. The window counts them, so each would make it smaller permanently. The lists are as long as the window. The scan
// starts at the end of a list that changes least; the next call finds entries that this one misses.
//
// If an active task is removed together with its message, the row of the email decides what happens to the email.
func (p *Publisher) RemoveStrays(ctx context.Context, queueName string) (removed int, err error) {
	k := keysOf(p.conn.queueName(queueName))
	keys := []string{k.pending, k.active, k.lease}
	defer func() { p.repairs.strays.Add(int64(removed)) }()
	for list := 1; list <= 2; list++ {
		for first := 0; ; {
			looked, n, err := p.removeStrays(ctx, keys, k.tasks, list, first)
			if err != nil {
				return removed, err
			}
			removed += n
			first += looked - n
			if looked < strayPage {
				break
			}
		}
	}
	return removed, nil
}

func (p *Publisher) removeStrays(ctx context.Context, keys []string, hash string, list, first int) (looked, n int, err error) {
	earliest, latest := scoresNow()
	answer, err := strayScript.Run(ctx, p.redis, keys, hash, list, first, first+strayPage-1, earliest, latest).Int64Slice()
	if err != nil || len(answer) != 2 {
		return 0, 0, fmt.Errorf("remove strays: %w", err)
	}
	return int(answer[0]), int(answer[1]), nil
}

// Ready lists the ids of the pending tasks of a queue, which are at most as many as the window.
func (p *Publisher) Ready(ctx context.Context, queueName string) ([]string, error) {
	ids, err := p.redis.LRange(ctx, keysOf(p.conn.queueName(queueName)).pending, 0, -1).Result()
	return ids, wrap("list ready tasks", err)
}
