package asynqueue

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// registry is the set of queue names that asynq's Inspector and the dashboard use.
	registry = "asynq:queues"
	// registerInterval is how often a name is added again, because a flushed Redis loses it and
	// asynq's client adds it only once per process.
	registerInterval = time.Second
)

// registrar is a hook for the go-redis client of the Publisher that adds queue names to the registry. In a cluster the registry
// is on one node, for which a publish must not wait: names are added in the background and failures are ignored. The next try
// follows after registerInterval; until then only the dashboard lacks the name.
type registrar struct {
	background bool
	repairs    *repairCounts
	added      sync.Map // when register last added each queue
	adding     sync.WaitGroup
}

// DialHook implements redis.Hook.
func (r *registrar) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (r *registrar) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook, for the SADD of asynq and of register.
func (r *registrar) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if cmd.Name() != "sadd" || len(args) != 3 || args[1] != registry {
			return next(ctx, cmd)
		}
		name, _ := args[2].(string)
		add := func(ctx context.Context) error {
			own := redis.NewIntCmd(ctx, args...)
			err := next(ctx, own)
			if err == nil {
				r.repairs.named(name, own.Val() == 1)
			}
			return err
		}
		if !r.background {
			return add(ctx)
		}
		r.adding.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ioTimeout)
			defer cancel()
			_ = add(ctx)
		})
		return nil
	}
}

// register adds a queue's name to the registry, once per registerInterval.
func (r *registrar) register(ctx context.Context, client redis.Cmdable, name string) error {
	last, _ := r.added.Load(name)
	if at, ok := last.(time.Time); ok && time.Since(at) < registerInterval {
		return nil
	}
	if err := client.SAdd(ctx, registry, name).Err(); err != nil {
		return wrap("register queue", err)
	}
	r.added.Store(name, time.Now())
	return nil
}
