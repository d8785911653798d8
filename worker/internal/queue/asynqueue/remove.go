package asynqueue

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// removeScript removes tasks by id: archived and completed ones, and with "all" ready and delayed ones too. It does not remove
// active tasks. It is one step, like clearScript.
//
// KEYS: pending, active, lease, scheduled, retry, archived, completed, then a hash per id; ARGV: "all" or "", the results of
// scoresNow, then the ids. It returns for each id 0: no task, 1: removed, 2: not removed.
var removeScript = redis.NewScript(isCurrent + `
local result = {}
for i = 4, #ARGV do
    local id, hash, is = ARGV[i], KEYS[i + 4], 0
    if redis.call("EXISTS", hash) == 1 or redis.call("ZSCORE", KEYS[6], id) or redis.call("ZSCORE", KEYS[7], id) then
        local lease = redis.call("ZSCORE", KEYS[3], id)
        if current(lease, ARGV[2], ARGV[3]) then
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
    result[i - 3] = is
end
return result`)

// RemoveTasks removes the tasks of up to some hundred ids from a queue: archived and completed ones, and if all is set also
// ready and delayed ones. It returns for each id whether a task was removed, and whether one remains because a worker has it or
// will receive it.
func (p *Publisher) RemoveTasks(ctx context.Context, queueName string, ids []string, all bool) (removed, kept []bool, err error) {
	k := keysOf(p.conn.queueName(queueName))
	keys := []string{k.pending, k.active, k.lease, k.scheduled, k.retry, k.archived, k.completed}
	which := ""
	if all {
		which = "all"
	}
	first, last := scoresNow()
	args := []any{which, first, last}
	for _, id := range ids {
		keys, args = append(keys, k.task(id)), append(args, id)
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
