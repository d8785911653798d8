package asynqueue

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// glance is how long a queue that was found empty is taken for empty. It is shorter than
// any pause of a Server that has nothing to do (pickup): only one that has work, and asks
// the other queues in passing, is spared the question. Of 256 hands each email costs 2.2
// scripts, instead of 3.1.
const glance = 3 * time.Millisecond

// emptyQueues is a hook for the go-redis client of asynq's Servers. A Server asks one queue
// after the other for its next task, those of large weight first more often, so that it comes
// by the queues where nothing waits thousands of times per second.
type emptyQueues struct {
	mu    sync.Mutex
	found map[string]time.Time // by the key of what is pending: when it was found empty
}

func newEmptyQueues() *emptyQueues { return &emptyQueues{found: make(map[string]time.Time)} }

// DialHook implements redis.Hook.
func (e *emptyQueues) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (e *emptyQueues) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (e *emptyQueues) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		queue := asked(cmd)
		if queue == "" {
			return next(ctx, cmd)
		}
		if e.isEmpty(queue) {
			cmd.SetErr(redis.Nil)
			return redis.Nil
		}
		err := next(ctx, cmd)
		if errors.Is(err, redis.Nil) {
			e.mu.Lock()
			e.found[queue] = time.Now()
			e.mu.Unlock()
		}
		return err
	}
}

func (e *emptyQueues) isEmpty(queue string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Since(e.found[queue]) < glance
}

// asked is the key of what is pending in the queue whose next task the command is to take;
// "" for any other command. It is the one script of asynq whose first two keys are these.
func asked(cmd redis.Cmder) string {
	args := cmd.Args() // EVALSHA, script, how many keys, the keys, …
	if len(args) < 5 || !strings.HasPrefix(cmd.Name(), "eval") {
		return ""
	}
	pending, _ := args[3].(string)
	paused, _ := args[4].(string)
	if !strings.HasSuffix(pending, ":pending") || !strings.HasSuffix(paused, ":paused") {
		return ""
	}
	return pending
}
