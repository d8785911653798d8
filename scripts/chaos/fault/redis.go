package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/shared/service"
)

// flush empties Redis.
func flush(c *cluster.Cluster, _ string, _ *rand.Rand) Fault {
	return hooks{begin: func(ctx context.Context) error {
		return onRedis(ctx, c, func(client *redis.Client) error { return client.FlushAll(ctx).Err() })
	}}
}

// fill sets Redis's memory limit so low that it refuses all writes.
func fill(c *cluster.Cluster, _ string, _ *rand.Rand) Fault {
	limit := func(bytes string) func(context.Context) error {
		return func(ctx context.Context) error {
			return onRedis(ctx, c, func(client *redis.Client) error { return client.ConfigSet(ctx, "maxmemory", bytes).Err() })
		}
	}
	return hooks{begin: limit("1"), end: limit("0")}
}

func onRedis(ctx context.Context, c *cluster.Cluster, work func(*redis.Client) error) error {
	o, err := redis.ParseURL(c.Redis.URL)
	if err != nil {
		return fmt.Errorf("read the URL of redis: %w", err)
	}
	client := redis.NewClient(o)
	return errors.Join(work(client), client.Close())
}

// syncInterval is the time whose writes appendfsync everysec may lose.
const syncInterval = time.Second

// cutPower kills Redis and removes the last second of writes from its log, as a power failure would
// with appendfsync everysec: finished tasks are on their queue again.
func cutPower(c *cluster.Cluster, _ string, _ *rand.Rand) Fault {
	return hooks{
		begin: func(ctx context.Context) error {
			path, size, err := appendLog(c)
			if err != nil {
				return err
			}
			if err := service.Pause(ctx, syncInterval); err != nil {
				return err
			}
			if err := c.Redis.Kill(ctx); err != nil {
				return err
			}
			if now, _, err := appendLog(c); err != nil || now != path {
				return err // it was rewritten in the meantime, and a rewrite is synced
			}
			if err := os.Truncate(path, size); err != nil {
				return fmt.Errorf("truncate the log of redis: %w", err)
			}
			return nil
		},
		end: c.Redis.Start,
	}
}

// appendLog returns the file to which Redis currently appends, and its size.
func appendLog(c *cluster.Cluster) (path string, size int64, err error) {
	path, err = c.Redis.Newest("appendonlydir/*.incr.aof")
	if err != nil {
		return "", 0, err
	}
	about, err := os.Stat(path)
	if err != nil {
		return "", 0, fmt.Errorf("find the log of redis: %w", err)
	}
	return path, about.Size(), nil
}
