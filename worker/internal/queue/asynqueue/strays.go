package asynqueue

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// strayScript takes ids off a list that will never leave it by themselves. A worker cannot
// run a task that has no message, and asynq's recovery passes it over; a task in work that
// has no lease is found by nobody, since asynq gives both in one step. The rows are not
// asked: whatever they say, no worker will be given these tasks, and every other id on the
// lists comes to a worker, which asks its row.
//
// KEYS: pending, active, lease; ARGV: what a hash's key begins with, the time before which a
// lease is over, which of the two lists, and the first and last place to look at. It
// returns how many places there were and how many ids were removed. The hashes' keys have
// the same tag, so that a cluster keeps them in one place.
var strayScript = redis.NewScript(`
local list = KEYS[tonumber(ARGV[3])]
local ids = redis.call("LRANGE", list, ARGV[4], ARGV[5])
local n = 0
for _, id in ipairs(ids) do
    local lease = redis.call("ZSCORE", KEYS[3], id)
    local whole = redis.call("HEXISTS", ARGV[1] .. id, "msg") == 1
    local held = lease and tonumber(lease) >= tonumber(ARGV[2])
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

// strayPage bounds one call, which takes Redis a millisecond.
const strayPage = 500

// RemoveStrays takes off a queue's lists what a crash or a loss of data left there and no
// worker will ever take, and says how many it were. The window counts them, so each would
// narrow the window for good. The lists are as long as the window. It looks from the end
// that moves least; what slips by is found the next time.
//
// A task in work that is removed with its message is one whose row says what becomes of it.
func (p *Publisher) RemoveStrays(ctx context.Context, queueName string) (removed int, err error) {
	base := "asynq:{" + p.conn.queueName(queueName) + "}:"
	keys := []string{base + "pending", base + "active", base + "lease"}
	defer func() { p.repairs.strays.Add(int64(removed)) }()
	for list := 1; list <= 2; list++ {
		for first := 0; ; {
			looked, n, err := p.removeStrays(ctx, keys, base+"t:", list, first)
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
	answer, err := strayScript.Run(ctx, p.redis, keys, hash, leaseOver(), list, first, first+strayPage-1).Int64Slice()
	if err != nil || len(answer) != 2 {
		return 0, 0, fmt.Errorf("remove strays: %w", err)
	}
	return int(answer[0]), int(answer[1]), nil
}

// Ready lists the tasks of a queue that wait for a worker: as many as the window holds.
func (p *Publisher) Ready(ctx context.Context, queueName string) ([]string, error) {
	ids, err := p.redis.LRange(ctx, "asynq:{"+p.conn.queueName(queueName)+"}:pending", 0, -1).Result()
	return ids, wrapped("list ready tasks", err)
}
