package asynqueue

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// sweeps is a hook for the go-redis client of the asynq Servers. They take tasks, forward due ones and search for ended
// leases in loops over all queues, which end at the first error; the length of a queue is read before a task is taken.
// For a queue whose node is down, or whose slot moves to another node, the hook returns an empty result, so both affect
// only their own queues.
type sweeps struct{}

// DialHook implements redis.Hook.
func (sweeps) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (sweeps) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (sweeps) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if !errors.Is(err, errNodeDown) && !redis.HasErrorPrefix(err, "TRYAGAIN") {
			return err
		}
		if takesTask(cmd) {
			cmd.SetErr(redis.Nil)
			return redis.Nil
		}
		if length, ok := cmd.(*redis.IntCmd); ok && cmd.Name() == "llen" {
			length.SetVal(0)
			length.SetErr(nil)
			return nil
		}
		script, ok := cmd.(*redis.Cmd)
		nothing := swept(cmd)
		if !ok || nothing == nil {
			return err
		}
		script.SetVal(nothing)
		script.SetErr(nil)
		return nil
	}
}

// takesTask reports whether the command is asynq's script that takes a task.
func takesTask(cmd redis.Cmder) bool {
	args := cmd.Args() // EVALSHA, script, number of keys, the keys, …
	if len(args) < 5 || !strings.HasPrefix(cmd.Name(), "eval") {
		return false
	}
	pending, _ := args[3].(string)
	paused, _ := args[4].(string)
	return takes([]string{pending, paused})
}

// swept returns the empty result of the asynq scripts that run in loops over all queues, and nil for other commands: forwardCmd
// has the keys scheduled or retry, and pending; only listLeaseExpiredCmd has the single key lease.
func swept(cmd redis.Cmder) any {
	args := cmd.Args() // EVALSHA, script, number of keys, the keys, …
	if len(args) < 4 || !strings.HasPrefix(cmd.Name(), "eval") {
		return nil
	}
	keys, _ := args[2].(int)
	first, _ := args[3].(string)
	switch {
	case keys == 2 && (strings.HasSuffix(first, ":scheduled") || strings.HasSuffix(first, ":retry")):
		return int64(0)
	case keys == 1 && strings.HasSuffix(first, ":lease"):
		return []any{}
	}
	return nil
}
