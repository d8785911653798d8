package asynqueue

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// removeScript removes tasks by their ids: what is archived or completed, and with "all" what
// is ready or waits for its time too. One that a worker has stays, as does one of another
// state without "all". In one step, as in clearScript.
//
// KEYS: pending, active, lease, scheduled, retry, archived, completed, then a hash for each
// id; ARGV: "all" or "", the time before which a lease is over, then the ids. It returns for
// each id 0: there is none, 1: it was removed, 2: it stays.
var removeScript = redis.NewScript(`
local result = {}
for i = 3, #ARGV do
    local id, hash, is = ARGV[i], KEYS[i + 5], 0
    if redis.call("EXISTS", hash) == 1 or redis.call("ZSCORE", KEYS[6], id) or redis.call("ZSCORE", KEYS[7], id) then
        local lease = redis.call("ZSCORE", KEYS[3], id)
        if lease and tonumber(lease) >= tonumber(ARGV[2]) then
            is = 2
        elseif ARGV[1] ~= "all" and not redis.call("ZSCORE", KEYS[6], id) and not redis.call("ZSCORE", KEYS[7], id) then
            is = 2
        else
            redis.call("LREM", KEYS[1], 0, id)
            redis.call("LREM", KEYS[2], 0, id)
            for k = 3, 7 do
                redis.call("ZREM", KEYS[k], id)
            end
            redis.call("DEL", hash)
            is = 1
        end
    end
    result[i - 2] = is
end
return result`)

// RemoveTasks removes the tasks of these ids, some hundreds at most, from a queue: those that
// it has archived, and with all those that wait too. It returns for each whether there was one
// and is no more, and whether it stays: a worker has it, or will be given it.
func (p *Publisher) RemoveTasks(ctx context.Context, queueName string, ids []string, all bool) (removed, kept []bool, err error) {
	base := "asynq:{" + p.conn.queueName(queueName) + "}:"
	keys := []string{base + "pending", base + "active", base + "lease", base + "scheduled", base + "retry", base + "archived", base + "completed"}
	which := ""
	if all {
		which = "all"
	}
	args := []any{which, leaseOver()}
	for _, id := range ids {
		keys, args = append(keys, base+"t:"+id), append(args, id)
	}
	answer, err := removeScript.Run(ctx, p.redis, keys, args...).Int64Slice()
	if err != nil {
		return nil, nil, fmt.Errorf("remove tasks: %w", err)
	}
	removed, kept = make([]bool, len(ids)), make([]bool, len(ids))
	for i, n := range answer {
		removed[i], kept[i] = n == 1, n == 2
	}
	return removed, kept, nil
}
