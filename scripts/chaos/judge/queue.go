package judge

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Queue is what stands on one of asynq's queues.
type Queue struct {
	Name                              string
	Pending, Active, Scheduled, Retry int64
}

// Waiting is what the dispatcher's window bounds.
func (q Queue) Waiting() int64 { return q.Pending + q.Active }

// Tasks are all that will run again.
func (q Queue) Tasks() int64 { return q.Pending + q.Active + q.Scheduled + q.Retry }

// Queues measures the email queues.
func Queues(ctx context.Context, url string) (queues []Queue, err error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("read the URL of redis: %w", err)
	}
	o.MaxRetries = -1
	client := redis.NewClient(o)
	defer func() { err = errors.Join(err, client.Close()) }()
	for _, name := range queueNames {
		base := "asynq:{" + name + "}:"
		pipe := client.Pipeline()
		pending, active := pipe.LLen(ctx, base+"pending"), pipe.LLen(ctx, base+"active")
		scheduled, retry := pipe.ZCard(ctx, base+"scheduled"), pipe.ZCard(ctx, base+"retry")
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, fmt.Errorf("measure queue %s: %w", name, err)
		}
		queues = append(queues, Queue{name, pending.Val(), active.Val(), scheduled.Val(), retry.Val()})
	}
	return queues, nil
}

// tryQueues: nothing is left on Redis.
func (j *Judge) tryQueues(ctx context.Context) error {
	queues, err := Queues(ctx, j.stage.Redis.URL)
	if err != nil {
		return err
	}
	for _, q := range queues {
		if q.Tasks() > 0 {
			j.Find(Leftover, "%s holds %d pending, %d active, %d scheduled tasks and %d for a retry", q.Name, q.Pending, q.Active, q.Scheduled, q.Retry)
		}
	}
	return nil
}
