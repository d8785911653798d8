package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/scripts/chaos/stage"
	"email-gateway/shared/service"
)

// flush empties Redis.
func flush(s *stage.Stage, _ string, _ *rand.Rand) Fault {
	return hooks{begin: func(ctx context.Context) error {
		return onRedis(ctx, s, func(client *redis.Client) error { return client.FlushAll(ctx).Err() })
	}}
}

// fill leaves Redis no memory: it refuses whatever would take more of it.
func fill(s *stage.Stage, _ string, _ *rand.Rand) Fault {
	limit := func(bytes string) func(context.Context) error {
		return func(ctx context.Context) error {
			return onRedis(ctx, s, func(client *redis.Client) error { return client.ConfigSet(ctx, "maxmemory", bytes).Err() })
		}
	}
	return hooks{begin: limit("1"), end: limit("0")}
}

func onRedis(ctx context.Context, s *stage.Stage, work func(*redis.Client) error) error {
	o, err := redis.ParseURL(s.Redis.URL)
	if err != nil {
		return fmt.Errorf("read the URL of redis: %w", err)
	}
	client := redis.NewClient(o)
	return errors.Join(work(client), client.Close())
}

// syncInterval is what appendfsync everysec may lose.
const syncInterval = time.Second

// cutPower kills Redis and takes the last second of writes from its log, as the machine's
// power cut would with appendfsync everysec: tasks that were done stand on their queue
// again.
func cutPower(s *stage.Stage, _ string, _ *rand.Rand) Fault {
	return hooks{
		begin: func(ctx context.Context) error {
			path, size, err := appendLog(s)
			if err != nil {
				return err
			}
			if err := service.Pause(ctx, syncInterval); err != nil {
				return err
			}
			if err := s.Redis.Kill(ctx); err != nil {
				return err
			}
			if now, _, err := appendLog(s); err != nil || now != path {
				return err // it was rewritten just then, and a rewrite is synced
			}
			if err := os.Truncate(path, size); err != nil {
				return fmt.Errorf("cut the power of redis: %w", err)
			}
			return nil
		},
		end: s.Redis.Start,
	}
}

// appendLog is the file that Redis appends to at present, and its size.
func appendLog(s *stage.Stage) (path string, size int64, err error) {
	path, err = s.Redis.Newest("appendonlydir/*.incr.aof")
	if err != nil {
		return "", 0, err
	}
	about, err := os.Stat(path)
	if err != nil {
		return "", 0, fmt.Errorf("find the log of redis: %w", err)
	}
	return path, about.Size(), nil
}
